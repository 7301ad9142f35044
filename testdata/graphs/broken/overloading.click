elementclass Two { input -> output } || { $x | input -> output }
