elementclass { input -> output }
