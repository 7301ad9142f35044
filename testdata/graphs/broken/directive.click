#include "common.click"
Idle -> Discard;
