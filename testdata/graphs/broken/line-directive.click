# 100 "generated.click"
Idle -> Discrad;
