Idle -> Print(costs 5$) -> Discard;
