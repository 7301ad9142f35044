// A file with much wrong in it: one run tells all.
src :: FromDevic(eth0);
src -> cnt :: Counter(;
