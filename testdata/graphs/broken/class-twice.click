elementclass Pass { input -> output }
elementclass Pass { input -> Counter -> output }
