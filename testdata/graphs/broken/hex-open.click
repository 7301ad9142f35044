InfiniteSource(DATA \<48 45) -> Discard;
