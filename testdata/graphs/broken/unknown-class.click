src :: InfinteSource -> Discard;
