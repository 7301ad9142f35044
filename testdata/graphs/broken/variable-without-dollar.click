define(x 1);
