Counter :: Counter;
