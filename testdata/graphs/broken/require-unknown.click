require(compact_config);
