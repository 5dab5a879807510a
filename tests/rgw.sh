# shellcheck shell=bash
# A real S3 server for tests: Ceph's gateway with the fewest daemons that it runs with (one monitor, one OSD
# that keeps everything in memory), on loopback, below $T/rgw. Sourced after lib.sh.
#
#   requires_rgw              skips the test where the packages are missing
#   start_rgw                 sets S3 (http://127.0.0.1:PORT), S3_TLS (https://localhost:PORT, CA in $T/rgw/tls.crt); exports
#                             AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY of a user "test", and AWS_CONFIG_FILE
#                             etc., so that the files of the user who runs the tests are not used
#                             With RGW_STS=1 the server issues session tokens, and answers AccessDenied
#                             for names that it does not know.
#   rgw_admin ARGUMENT...     radosgw-admin

requires_rgw() {
	requires radosgw radosgw-admin ceph-mon ceph-osd monmaptool
}

# Another test may take a free port before the daemons do, so starting is tried again.
start_rgw() {
	local try
	for try in 1 2 3; do
		if ps_rgw_try >"$T/rgw-start-$try.log" 2>&1; then
			return
		fi
		ps_kill_rgw
	done
	die "the S3 server starts" "try $try" "$(tail -qn 20 "$T"/rgw-start-*.log "$T"/rgw/*.out 2>/dev/null)"
}

ps_kill_rgw() {
	local pidfile
	for pidfile in "$T"/rgw/*.pid; do
		[[ ! -s $pidfile ]] || kill -KILL "$(cat "$pidfile")" 2>/dev/null || true
	done
}

rgw_admin() {
	CEPH_CONF=$T/rgw/ceph.conf timeout -k 5 60 radosgw-admin -n client.rgw "$@" 2>>"$T/rgw/admin.log"
}

# Debian 13's ceph-osd looks for its classes in lib/... below the current directory.
ps_rgw_daemon() { # NAME COMMAND...
	local name=$1
	shift
	env -C / "$@" >"$T/rgw/$name.out" 2>&1 &
	echo $! >"$T/rgw/$name.pid"
}

# Succeeds if the server answers, or never will: one of its daemons has ended, as its port was taken. An OSD
# also ends ("wrong fsid") if it asks a busy monitor before it has the monitor's map; it is started again.
ps_rgw_answers() {
	local name
	if ! kill -0 "$(cat "$T/rgw/osd.pid")" && ((ps_osd_starts++ < 5)); then
		ps_rgw_daemon osd ceph-osd -i 0 -f
	fi
	for name in mon osd radosgw; do
		kill -0 "$(cat "$T/rgw/$name.pid")" || return 0
	done
	curl -s -m 5 -o /dev/null "http://127.0.0.1:$1/"
}

ps_rgw_try() {
	local dir=$T/rgw port tls mon ports fsid osd
	rm -rf "$dir"
	mkdir -p "$dir"/{mon,osd,run}
	port=$(free_port) tls=$(free_port) mon=$(free_port) ports=$(free_port)
	fsid=$(cat /proc/sys/kernel/random/uuid)
	osd=$(cat /proc/sys/kernel/random/uuid)
	openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost \
		-addext subjectAltName=DNS:localhost,DNS:shards.localhost,IP:127.0.0.1 -keyout "$dir/tls.key" -out "$dir/tls.crt"
	export CEPH_CONF=$dir/ceph.conf
	ps_rgw_conf "$dir" "$fsid" "$port" "$tls" "$mon" "$ports" >"$CEPH_CONF"
	: >"$dir/keyring"
	monmaptool --create --clobber --fsid "$fsid" --addv a "[v1:127.0.0.1:$mon]" "$dir/monmap"
	ceph-mon --mkfs -i a --monmap "$dir/monmap" --keyring "$dir/keyring" || return 1
	ps_rgw_daemon mon ceph-mon -i a -f
	timeout -k 1 40 ceph --connect-timeout 30 osd new "$osd" || return 1
	ceph-osd -i 0 --mkfs --osd-uuid "$osd" || return 1
	ps_osd_starts=0
	ps_rgw_daemon osd ceph-osd -i 0 -f
	ps_rgw_daemon radosgw radosgw -n client.rgw -f
	# The gateway makes its pools before it listens.
	wait_until 60 ps_rgw_answers "$port"
	curl -s -o /dev/null "http://127.0.0.1:$port/" || return 1
	export AWS_ACCESS_KEY_ID=TESTACCESSKEY0000001 AWS_SECRET_ACCESS_KEY=testsecretkey/with+chars0000000000000001
	rgw_admin user create --uid=test --display-name=test --access-key="$AWS_ACCESS_KEY_ID" \
		--secret-key="$AWS_SECRET_ACCESS_KEY" --max-buckets=1000 --caps="user-policy=*" >/dev/null || return 1
	export AWS_CONFIG_FILE=$dir/aws-config AWS_SHARED_CREDENTIALS_FILE=$dir/aws-credentials AWS_EC2_METADATA_DISABLED=true
	unset AWS_SESSION_TOKEN AWS_PROFILE AWS_REGION AWS_DEFAULT_REGION AWS_ENDPOINT_URL AWS_ENDPOINT_URL_S3 AWS_CA_BUNDLE CEPH_CONF
	export S3=http://127.0.0.1:$port S3_TLS=https://localhost:$tls
}

# An OSD takes the first free ports of a range, and ends if another OSD takes one at the same moment.
# So each has a range of its own.
ps_rgw_conf() { # DIR FSID PORT TLS-PORT MONITOR-PORT OSD-PORTS
	cat <<-CONF
		[global]
		fsid = $2
		mon initial members = a
		mon host = v1:127.0.0.1:$5
		public addr = 127.0.0.1
		cluster addr = 127.0.0.1
		ms bind msgr2 = false
		ms bind ipv6 = false
		auth cluster required = none
		auth service required = none
		auth client required = none
		auth allow insecure global id reclaim = true
		keyring = $1/keyring
		run dir = $1/run
		admin socket = $1/run/\$name.\$pid.asok
		crash dir = $1/run
		pid file =
		log file =
		mon cluster log file =
		err to stderr = true
		osd pool default size = 1
		osd pool default min size = 1
		osd pool default pg num = 1
		osd pool default pgp num = 1
		osd pool default pg autoscale mode = off
		osd crush chooseleaf type = 0
		mon allow pool size one = true
		mon warn on pool no redundancy = false
		mon max pg per osd = 1000
		mon data avail warn = 2
		mon data avail crit = 1
		[mon.a]
		host = $(hostname)
		mon addr = v1:127.0.0.1:$5
		mon data = $1/mon
		[osd]
		osd data = $1/osd
		ms bind port min = $6
		ms bind port max = $(($6 + 200))
		osd objectstore = memstore
		osd class load list = *
		osd class default list = *
		memstore device bytes = 2147483648
		osd op num shards = 2
		[client.rgw]
		rgw data = $1
		rgw frontends = beast endpoint=127.0.0.1:$3 ssl_endpoint=127.0.0.1:$4 ssl_certificate=$1/tls.crt ssl_private_key=$1/tls.key
		rgw run sync thread = false
		rgw enable usage log = false
		rgw enable ops log = false
		rgw enable gc threads = false
		rgw enable lc threads = false
		rgw enable quota threads = false
		rgw thread pool size = 64
		rgw override bucket index max shards = 1
		rgw dynamic resharding = false
		rgw dns name = localhost
		${RGW_STS:+rgw s3 auth use sts = true}
		${RGW_STS:+rgw sts key = abcdefghijklmnop}
	CONF
}
