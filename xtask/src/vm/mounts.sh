# Begins the job, as the first process on the files of the host; $modules is the folder of the kernel's modules.
mkdir -p /dev/pts /dev/shm "/lib/modules/$(uname -r)"
mount -t devpts devpts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t tmpfs tmp /tmp
mount -t cgroup2 cgroup /sys/fs/cgroup
mount -t bpf bpf /sys/fs/bpf
mount --bind "$modules" "/lib/modules/$(uname -r)"
