# The end of init: the files of the host below and memory above them, then the job in there.
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
