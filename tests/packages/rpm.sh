#!/usr/bin/env bash
# tests/packages/rpm.sh DIR: installs the RPMs in DIR on this Debian, uses them, and removes them. Run it
# only in a disposable root: scripts/rpm --test makes one.
. "${0%/*}/lib.sh"
disposable scripts/rpm
packages=$1
# --nodeps: the libraries are Debian's, which rpm's database does not have. Debian's rpm requires
# --force-debian.
rpm() { command rpm --nodeps --force-debian "$@"; }

apt update
mapfile -t libraries <"$packages/libraries"
apt install rpm nginx-light python3-numpy fuse3 "${libraries[@]}"
mapfile -t rpms < <(find "$packages" -name '*.rpm' ! -name '*.src.rpm')

check "packages install" rpm -i "${rpms[@]}"
check "the packages install no compiler" bash -c '! command -v cc'
version=$(sed -nE 's/^AC_INIT\(\[penstock\], \[([^]]*)\].*/\1/p' /penstock/configure.ac)
check "penstock is of this version" grep -F "$version" <(penstock --version)
check "penstock-loader is of this version" grep -F "$version" <(penstock-loader --version)
check "rpm -V confirms the installed files" rpm -V penstock penstock-loader libpenstock0 \
	libpenstock-devel python3-penstock
check "only root may read /etc/penstock" test "$(stat -c %a:%U /etc/penstock)" = 750:root
check "logrotate has a file" test -e /etc/logrotate.d/penstock
check "penstock.conf is a configuration file" grep -x /etc/penstock.conf \
	<(command rpm -q --configfiles penstock)
check "the default penstock.conf is valid" penstock mount --all
check "bash completion is installed" \
	bash -c '. /usr/share/bash-completion/completions/penstock && complete -p penstock'
check "the unit is where systemd looks" test -e /usr/lib/systemd/system/penstock@.service
check "the unit starts what is installed" grep -q '^ExecStart=/usr/bin/penstock ' \
	/usr/lib/systemd/system/penstock@.service
check "the cache's folder is made at boot" grep /var/cache/penstock /usr/lib/tmpfiles.d/penstock.conf
for page in man1/penstock.1 man1/penstock-mount.1 man1/penstock-loader.1 man3/libpenstock.3 \
	man3/penstock_loader_next.3 man3/penstock_loader_wait.3 \
	man5/penstock.conf.5 man8/mount.penstock.8; do
	check "the manual page $page is installed" compgen -G "/usr/share/man/$page*"
done
check "each package but -devel has the licence" test "$(command rpm -qa --licensefiles | wc -l)" = 4
check "pkg-config would find the library" test -e /usr/lib/"$(uname -m)-linux-gnu"/pkgconfig/libpenstock.pc

mkdir "$work/in" "$work/served" "$work/mnt"
i=0
for photo in /penstock/tests/data/photos/*.jpg; do
	cp "$photo" "$work/in/$i.jpg"
	echo "$i" >"$work/in/$i.cls"
	i=$((i + 1))
done
check "penstock-loader makes shards" penstock-loader pack "$work/in" "$work/served/x-%06d.tar" --max-count 4
start_nginx 8766

check "mount -t penstock finds its helper" mount -t penstock http://127.0.0.1:8766/ "$work/mnt"
check "bytes read through the mount are right" diff -r "$work/served" "$work/mnt" -x .penstock
check "penstock-loader loads from the mount" penstock-loader bench --epochs 1 "$work/mnt"
cat >"$work/load.py" <<-'END'
	import sys
	import penstock
	fields = {"image": penstock.Image("jpg", size=64), "cls": penstock.Int("cls")}
	loader = penstock.Loader(sys.argv[1] + "/*.tar", batch=8, format="numpy", end="uneven", fields=fields)
	seen = sorted(int(c) for batch in loader for c in batch["cls"])
	assert seen == list(range(int(sys.argv[2]))), seen
END
check "Python loads from the mount" /usr/bin/python3 "$work/load.py" "$work/mnt" "$i"

echo "# mine" >>/etc/penstock.conf
check "an upgrade to the same version succeeds" rpm -U --replacepkgs "${rpms[@]}"
check "the upgrade leaves mounts as they are" test "$(mounts)" = 1
check "the upgrade keeps a changed configuration" grep -q '# mine' /etc/penstock.conf
check "penstock is removed" rpm -e penstock
check "removing unmounts" test "$(mounts)" = 0
check "a changed configuration is kept aside" grep -q '# mine' /etc/penstock.conf.rpmsave
check "the loader still works" /usr/bin/python3 "$work/load.py" "$work/served" "$i"
check "the other packages are removed" rpm -e penstock-loader libpenstock-devel python3-penstock libpenstock0
left() { find /etc /usr -name '*penstock*' ! -name '*.rpmsave' | grep .; }
nothing_left() { ! left; }
check "nothing is left" nothing_left
stop_nginx
verdict
