elementclass Two { ... || input -> output }
