FromDevice(eth0) -> ttl :: DecIPTTL -> Discard;
ttl [expird] -> Discard;
