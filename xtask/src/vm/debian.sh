# The end of init where the machine is a Debian of its own: its files in memory, the checkout of the host under its own name, and
# systemd, which runs the job as a service. $archive, $checkout and $modules are paths of the host.
mount -t tmpfs -o mode=755 debian /new
tar -xf "/below$archive" -C /new
drivers=/new/usr/lib/modules/$(uname -r)
mkdir -p "/new$checkout" "$drivers"
mount --bind "/below$checkout" "/new$checkout"
mount --bind "/below$modules" "$drivers"
cp /job /new/opt/job
units=/new/etc/systemd/system
cat >$units/job.service <<end
[Unit]
Description=Tests
[Service]
ExecStart=/bin/sh /opt/job
end
mkdir -p $units/multi-user.target.wants
ln -s ../job.service $units/multi-user.target.wants/
# Nobody logs in; and this is not the first boot of an image, which would enable all services.
ln -s /dev/null $units/getty.target
echo 0f1e2d3c4b5a69788796a5b4c3d2e1f0 >/new/etc/machine-id
echo fingerpost >/new/etc/hostname
for folder in dev proc sys; do
    mount --move /$folder /new/$folder
done
exec switch_root /new /lib/systemd/systemd
