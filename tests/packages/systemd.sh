#!/usr/bin/env bash
# tests/packages/systemd.sh DIR: installs the packages in DIR on this system, boots it by systemd-nspawn, and
# uses the units there. Run it only in a disposable root: scripts/deb --test makes one.
. "${0%/*}/lib.sh"
disposable scripts/deb /srv # systemd mounts another /tmp
packages=$1

# Nothing starts before the system boots.
printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d
apt update
apt install systemd systemd-sysv systemd-container nginx-light fuse3 procps "$packages"/*.deb
rm /usr/sbin/policy-rc.d
rm -rf /var/cache/penstock # made at boot

mkdir "$work/in" "$work/served" /data
i=0
for photo in /penstock/tests/data/photos/*.jpg; do
	cp "$photo" "$work/in/$i.jpg"
	echo "$i" >"$work/in/$i.cls"
	i=$((i + 1))
done
penstock-loader pack "$work/in" "$work/served/x-%06d.tar" --max-count 4 >"$work/out"
cat >/etc/nginx/nginx.conf <<-END
	pid /run/nginx.pid;
	error_log /run/nginx.log;
	events {}
	http {
		access_log off;
		server { listen 127.0.0.1:80; root $work/served; autoindex on; }
	}
END
# Each unit has its own cache, and so its own daemon: none gets the origin's list from another.
unit_of() { # NAME SOURCE
	cat >"/etc/penstock/$1.conf" <<-END
		SOURCE=$2
		MOUNTPOINT=/data/$1
		OPTIONS=--cache-dir /var/cache/penstock-$1 --cache-size 1G
	END
	mkdir "/data/$1"
}
unit_of train http://127.0.0.1/
unit_of refused http://127.0.0.1:9/
mkdir /data/fstab
echo 'http://127.0.0.1/ /data/fstab penstock ro,_netdev,nofail,x-systemd.after=nginx.service 0 0' >>/etc/fstab
echo 'd /var/lib/prometheus/node-exporter' >/etc/tmpfiles.d/textfiles.conf

# The machine that boots is this root, with a network of its own. Its control groups are those of version 2,
# whatever version this machine has: newer versions of systemd support no other.
mkdir /machine
mount --bind / /machine
nspawn=0 leader=0
boot() {
	# shellcheck disable=SC2016 # for the inner shell
	unshare --mount --cgroup bash -euc '
		umount -R -l /sys/fs/cgroup
		mount -t cgroup2 cgroup2 /sys/fs/cgroup
		exec systemd-nspawn --quiet --boot --directory /machine --machine penstock --register=no \
			--keep-unit --private-network --bind /dev/fuse --resolv-conf=off --timezone=off \
			--link-journal=no --console=read-only
	' </dev/null >>"$work/console" 2>&1 &
	nspawn=$!
	wait_until 60 is_up
}
# The first process of the machine is nspawn's child.
is_up() {
	leader=$(<"/proc/$nspawn/task/$nspawn/children") && leader=${leader%% *} && [[ $leader ]] || return 1
	inside systemctl is-active multi-user.target
}
inside() { nsenter -t "$leader" -m -n -p -u -i -C -- "$@"; }
power_off() {
	inside systemctl poweroff
	local end=$((SECONDS + 60))
	while kill -0 "$nspawn" 2>/dev/null; do
		((SECONDS < end)) || return 1
		sleep 0.2
	done
}
boot || {
	tail -n 20 "$work/console"
	echo "SKIPPED: systemd.sh: systemd-nspawn cannot boot here (its last lines are above)"
	exit 77
}

property() { inside systemctl show -P "$1" "${2-penstock@train}"; }
is() { [[ $(property "$1") == "$2" ]]; } # PROPERTY VALUE
mounted() { inside findmnt -t fuse.penstock "/data/${1-train}"; }
served() { inside diff -r "$work/served" "/data/${1-train}" -x .penstock; }
signal_nginx() { inside systemctl kill --signal "$1" nginx; }

check "the cache's folder is made at boot" same "$(inside stat -c %a:%U /var/cache/penstock)" 700:root
check "the unit has Type=notify" is Type notify
signal_nginx STOP
check "the unit is started while the origin does not answer" inside systemctl start --no-block penstock@train
check "the unit is activating" wait_until 20 is ActiveState activating
sleep 2
check "the unit is still activating after 2 s" is ActiveState activating
check "nothing is mounted while the unit is activating" not mounted
signal_nginx CONT
check "the unit becomes active when the origin answers" wait_until 60 is ActiveState active
check "the active unit has its mount" mounted
check "bytes read through the mount are right" served
check "penstock-loader loads from the mount" inside penstock-loader bench --epochs 1 /data/train

logged() { # UNIT MESSAGE MATCH...
	inside journalctl -q -o cat -u "penstock@$1" "${@:3}" | grep -e "$2"
}
check "the journal has the unit's log, with fields and priority" wait_until 20 \
	logged train 'mount: .* on /data/train' PRIORITY=6 SYSLOG_IDENTIFIER=penstock
check "systemctl status shows the unit as running" \
	grep -F "Active: active (running)" <(inside systemctl status penstock@train)
check "the unit may open many files" same "$(property LimitNOFILE)" 1048576

pid=$(property MainPID)
check "a reload is refused, as the unit has none" not inside systemctl reload penstock@train
check "the refused reload leaves the process" is MainPID "$pid"
check "the mount still serves after the refused reload" served
check "systemctl restart succeeds" inside systemctl restart penstock@train
check "the restarted unit has another process" not is MainPID "$pid"
check "the restarted unit's mount serves" served
check "the journal has the unmounting" wait_until 20 \
	logged train 'mount: /data/train: unmounted' PENSTOCK_CALL=mount PENSTOCK_OBJECT=/data/train
pid=$(property MainPID)
inside kill -KILL "$pid"
check "the killed unit is started again" wait_until 30 is NRestarts 1
check "the killed unit becomes active again" wait_until 30 is ActiveState active
check "the killed unit's new mount serves" served
check "the unit stops" inside systemctl stop penstock@train
check "the stopped unit is inactive without an error" \
	same "$(property ActiveState) $(property Result)" "inactive success"
check "the stopped unit's mount is gone" not mounted
check "the stopped unit's process is gone" not inside pgrep -f 'penstock mount .*/data/train'

check "a start that fails is an error" not inside systemctl start penstock@refused
# (Newer versions of systemd show no log of an attempt that has ended: only the journal has the reason.)
check "status has the result" grep -F "Result: exit-code" <(inside systemctl status penstock@refused)
check "the journal has the reason, as an error" wait_until 20 \
	logged refused 'mount: .*127.0.0.1:9.*onnect' PRIORITY=3
tried_again() { (($(property NRestarts penstock@refused) > 0)); }
check "the failed unit is tried again" wait_until 20 tried_again
check "the failed unit can be stopped" inside systemctl stop penstock@refused
check "the failed unit has no mount" not mounted refused
check "a unit without a file is an error" not inside systemctl start penstock@absent

check "the mount of fstab is mounted at boot" wait_until 30 mounted fstab
check "the mount of fstab serves" served fstab
check "the unit and the timer are enabled" inside systemctl enable --now penstock@train penstock-metrics.timer
check "the machine powers off" power_off
check "the machine boots again" boot
check "the enabled unit becomes active at boot" wait_until 60 is ActiveState active
check "the enabled unit's mount serves" served
check "the mount of fstab serves again" wait_until 60 served fstab
metrics() { inside grep '^penstock_' /var/lib/prometheus/node-exporter/penstock.prom; }
check "the timer writes the metrics" wait_until 60 metrics

check "the package is removed" inside env DEBIAN_FRONTEND=noninteractive apt-get -q -y remove penstock
check "the unit has stopped" not is ActiveState active
check "the unit is gone" not inside systemctl cat penstock@train
check "nothing is mounted after the removal" not inside grep fuse.penstock /proc/mounts
check "no process is left" not inside pgrep -x penstock
check "the machine powers off without the package" power_off
verdict
