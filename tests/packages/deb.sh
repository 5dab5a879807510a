#!/usr/bin/env bash
# tests/packages/deb.sh DIR: installs the packages in DIR on this system, uses them, upgrades, removes and
# purges them. Run it only in a disposable root: scripts/deb --test makes one.
. "${0%/*}/lib.sh"
disposable scripts/deb
packages=$1

# The same packages as an older version.
mkdir "$work/old"
for deb in "$packages"/*.deb; do
	dpkg-deb -R "$deb" "$work/tree"
	sed -i -E 's/^(Version: .*-)[0-9]+$/\10/; s/(= [0-9.]+-)[0-9]+/\10/' "$work/tree/DEBIAN/control"
	dpkg-deb -b "$work/tree" "$work/old/" >"$work/out"
	rm -r "$work/tree"
done
apt update
apt install nginx-light python3-numpy fuse3

check "packages install" apt install "$work"/old/*.deb
check "the packages install no compiler" bash -c '! command -v cc'
check "programs run" bash -c 'penstock --version && penstock-loader --version'
check "only root may read /etc/penstock" test "$(stat -c %a:%U /etc/penstock)" = 750:root
check "logrotate has a file" test -e /etc/logrotate.d/penstock
check "penstock.conf is a conffile" grep -q /etc/penstock.conf <(dpkg-query -W -f '${Conffiles}' penstock)
check "the default penstock.conf is valid" penstock mount --all
check "bash completion is installed" \
	bash -c '. /usr/share/bash-completion/completions/penstock && complete -p penstock'
guides() { grep -oE '\]\((docs|tests)/[^)#]+' /usr/share/doc/penstock/README.md | cut -c 3- | sort -u; }
check "README is installed with links to guides" test "$(guides | wc -l)" -ge 20
check "the guides to which README links are installed" bash -c "cd /usr/share/doc/penstock && ls $(guides | xargs)"
check "the unit is where systemd looks" test -e /usr/lib/systemd/system/penstock@.service
check "pkg-config would find the library" test -e /usr/lib/"$(uname -m)-linux-gnu"/pkgconfig/libpenstock.pc

mkdir "$work/in" "$work/served" "$work/mnt"
for i in {0..63}; do
	head -c 20000 /dev/urandom >"$work/in/$i.bin"
	echo "$i" >"$work/in/$i.cls"
done
check "penstock-loader makes shards" penstock-loader pack "$work/in" "$work/served/x-%06d.tar" --max-count 16
start_nginx 8765

check "mount -t penstock finds its helper" mount -t penstock http://127.0.0.1:8765/ "$work/mnt"
check "bytes read through the mount are right" diff -r "$work/served" "$work/mnt" -x .penstock
cat >"$work/load.py" <<-'END'
	import sys
	import penstock
	loader = penstock.Loader(sys.argv[1] + "/*.tar", batch=8, format="numpy",
	                         fields={"bin": penstock.Bytes("bin"), "cls": penstock.Int("cls")})
	seen = sorted(int(c) for batch in loader for c in batch["cls"])
	assert seen == list(range(64)), seen
END
check "Debian's Python loads from the mount" /usr/bin/python3 "$work/load.py" "$work/mnt"

exec 7<"$work/mnt/x-000000.tar"
head -c 1000 <&7 >"$work/head"
pid=$({ grep -slx 'Name:[[:space:]]penstock' /proc/[0-9]*/status || true; } | head -n 1 | tr -dc 0-9)
check "an upgrade succeeds" apt install "$packages"/*.deb
cp "$work/apt" "$work/upgrade"
check "the upgrade says that running daemons stay the older version" \
	grep -q 'stay the older version' "$work/upgrade"
check "the upgrade leaves the daemon running" test -d "/proc/$pid"
cat <&7 >>"$work/head"
check "a reader reads on during the upgrade" cmp "$work/head" "$work/served/x-000000.tar"
echo "# mine" >>/etc/penstock.conf

check "removing penstock succeeds" apt remove penstock
check "removing unmounts" test "$(mounts)" = 0
check "a reader with an open file reads it to the end" bash -c "tail -c +1 <&7 >/dev/null"
exec 7<&-
check "a changed configuration stays" grep -q '# mine' /etc/penstock.conf
check "the loader still works" /usr/bin/python3 "$work/load.py" "$work/served"
check "purge succeeds" apt purge penstock penstock-loader libpenstock0 libpenstock-dev python3-penstock
check "purging leaves nothing" bash -c '! find /etc /var/cache /usr/lib/python3 -name "penstock*" | grep .'
stop_nginx
verdict
