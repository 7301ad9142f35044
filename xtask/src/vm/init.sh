#!/busybox sh
# The first process of the machine: drivers for what QEMU has, the files of the host below and memory above them,
# then /run/vm/job in there. What goes wrong here is on the console.
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
mount -t tmpfs above /above
mkdir /above/files /above/work
mount -t overlay -o lowerdir=/below,upperdir=/above/files,workdir=/above/work files /new
for folder in dev proc sys; do
    mount --move /$folder /new/$folder
done
mount -t tmpfs run /new/run
mkdir /new/run/vm
cp /busybox /job /new/run/vm/
exec switch_root /new /bin/sh /run/vm/job
