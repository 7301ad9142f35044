provide(x);
