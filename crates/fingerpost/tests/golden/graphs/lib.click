elementclass Named { input -> Counter -> output }
