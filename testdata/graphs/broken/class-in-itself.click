elementclass Loop { input -> Loop -> output }
