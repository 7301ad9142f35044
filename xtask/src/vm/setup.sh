# Begins the job. What the kernel does not load by itself when it is asked for it: /dev/net/tun, and the MPLS sysctls.
modprobe -a tun mpls_router mpls_iptunnel
ip link set lo up
for port in /sys/class/virtio-ports/*; do
    [ "$(cat "$port/name")" = output ] && output=/dev/${port##*/}
done
exec </dev/null >"$output" 2>&1
status=0
