elementclass Pass;
