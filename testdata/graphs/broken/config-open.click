src :: InfiniteSource(DATA \<00>, LIMIT 5;
src -> Discard;
