elementclass Pass { require(library x.click) input -> output }
