Idle("${name-"eth0"}");
