#!/busybox sh
# The first process of the machine: drivers for what QEMU has, and the files of the host in /below. `host.sh` or `debian.sh`
# follows, with /new as the root. What goes wrong here is on the console.
/busybox mkdir -p /bin /dev /proc /sys /below /above /new
/busybox --install -s /bin
export PATH=/bin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
for module in /modules/*; do
    insmod "$module" || echo "cannot load $module"
done
mount -t 9p -o ro,trans=virtio,version=9p2000.L,cache=loose,msize=1048576 host /below
