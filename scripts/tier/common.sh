# shellcheck shell=bash
# What the scripts of this folder share: their options, who may connect, starting and stopping. Sourced.
#
# A script sets `engine` (its name), `package`, `programs` (what must be installed) and `can` (words of:
# tls-origin, tls, check-each, strip-query), and defines
#
#   usage               prints --help
#   engine_print        prints the configuration
#   engine_config       writes it below $dir
#   engine_command      prints what then runs in the foreground, an argument a line
#   engine_option NAME VALUE   (may be missing) takes an option of its own, or fails
#   engine_watch PID           (may be missing) runs beside the server
#
# and calls tier_main "$@".

set -euo pipefail
export LC_ALL=C

: "${engine:?}" "${package:?}" "${programs:?}" "${can?}"
# shellcheck disable=SC2034 # read by the scripts
slice=4194304 # bytes: what a mount asks a tier for in one request

die() {
	echo "$engine: $*" >&2
	exit 1
}
refuse() {
	echo "$engine: $* (see --help)" >&2
	exit 2
}

common_options() {
	cat <<'USAGE'
  --origin URL      a server whose objects are kept: https://HOST[:PORT], without a path. Again for others. A
                    bucket with a host of its own is one: https://train.s3.eu-central-1.amazonaws.com
  --nodes A[,B...]  all tiers of the site, as HOST or HOST:PORT, the same list on each node. The script finds
                    which one is this machine, listens there, and lets the nodes of the list connect
  --this NODE       which of them this machine is [the one whose address it has]
  --port PORT       of nodes without one [3180]
  --listen ADDRESS  listen at this address, or ADDRESS:PORT, instead of this node's and 127.0.0.1. Again for
                    others
  --allow NETWORK   who may connect: an address or network, as 10.1.0.0/16. Again for others
                    [the nodes, and this machine]
  --secret-header NAME  a header that gives rights, beside Authorization and Cookie. Again for others
  --size SIZE       of the cache on disk: 200G, 1.5T [100G]
  --dataset SIZE    of all that is read: --size is then what tier and mounts may take together on this node. The
                    tier gets 1.05 times its part of the dataset; if that does not fit, nothing is started
  --dir DIR         configuration, cache and logs [/var/cache/penstock-tier]
  --cacert FILE     certificates that origins are verified with [the system's]
  --user USER       whom the server runs as, if this script is started by root
USAGE
}
common_actions() {
	cat <<'USAGE'
  --foreground      do not return: for systemd, Slurm and containers
  --stop            stop what runs with this --dir
  --print           print the configuration, and change nothing
  --unit            print a systemd unit that runs this command line
USAGE
}

# Options ----------------------------------------------------------------------------------------------------

bytes_of() { # OPTION SIZE
	local number unit
	[[ $2 =~ ^([0-9]{1,6})(\.[0-9]{1,3})?([KMGTP])(i?B)?$ ]] ||
		refuse "$1: '$2' is not a size such as 200G or 1.5T"
	number=${BASH_REMATCH[1]}${BASH_REMATCH[2]} unit=${BASH_REMATCH[3]}
	awk -v n="$number" -v u="$unit" 'BEGIN {printf "%.0f", n * 1024 ^ index("KMGTP", u)}'
}

# Sets address and port of HOST, HOST:PORT, [V6], [V6]:PORT or V6.
split_host() { # TEXT DEFAULT-PORT
	address=$1 port=$2
	if [[ $1 =~ ^\[([0-9a-fA-F:.]+)\](:([0-9]+))?$ ]]; then
		address=${BASH_REMATCH[1]} port=${BASH_REMATCH[3]:-$2}
	elif [[ $1 =~ ^([^:]*):([0-9]+)$ ]]; then
		address=${BASH_REMATCH[1]} port=${BASH_REMATCH[2]}
	fi
	[[ $address =~ ^[0-9A-Za-z_.:-]*$ ]] || refuse "'$1' is not HOST or HOST:PORT"
	[[ $port =~ ^[1-9][0-9]{0,4}$ ]] || refuse "'$1': $port is not a port"
	((port < 65536)) || refuse "'$1': $port is not a port"
}

# The addresses of a host, one a line.
addresses_of() {
	getent ahosts "$1" | awk '!seen[$1]++ {print $1}'
}

is_everywhere() { # "0.0.0.0", "::", and all other spellings of them
	local found
	[[ -n $1 && $1 != "*" ]] || return 0
	for found in $(addresses_of "$1"); do
		[[ ! $found =~ ^(0\.0\.0\.0|::|::ffff:0\.0\.0\.0|::0\.0\.0\.0)$ ]] || return 0
	done
	return 1
}
is_loopback() { [[ $1 =~ ^127\. || $1 == ::1 ]]; }

# How an address is written before a port.
bracketed() {
	if [[ $1 == *:* ]]; then echo "[$1]"; else echo "$1"; fi
}

# Sets scheme, host (as in the Host header), name (without port), origin_port.
split_origin() {
	[[ $1 =~ ^(https?)://([0-9A-Za-z._-]+|\[[0-9a-fA-F:]+\])(:([0-9]{1,5}))?/?$ ]] ||
		refuse "--origin: '$1' is not https://HOST or https://HOST:PORT (no path, no user)"
	scheme=${BASH_REMATCH[1]} name=${BASH_REMATCH[2],,} origin_port=${BASH_REMATCH[4]}
	local usual=80
	[[ $scheme == http ]] || usual=443
	: "${origin_port:=$usual}"
	host=$name
	((10#$origin_port == usual)) || host+=:$((10#$origin_port))
}

tier_options() {
	origins=() nodes=() listens=() allows=() stripped=() only=()
	secret_headers=(Authorization Cookie)
	this='' default_port=3180 size=100G dataset='' dir=/var/cache/penstock-tier cacert='' user='' tls='' \
		check_each=no action=start
	while (($#)); do
		case $1 in
		--foreground | --stop | --print | --unit) action=${1#--} ;;
		--check-each) check_each=yes ;;
		--help | -h)
			usage
			exit 0
			;;
		--origin | --nodes | --this | --port | --listen | --allow | --secret-header | \
			--size | --dataset | --dir | --cacert | --user | --tls | --strip-query)
			(($# > 1)) || refuse "$1 needs a value"
			[[ $2 != *[$'\n\t "\'\\;{}$']* ]] || refuse "$1: '$2' has characters that no such value has"
			case $1 in
			--origin) origins+=("$2") ;;
			--nodes) IFS=, read -ra nodes <<<"$2" ;;
			--this) this=$2 ;;
			--port) default_port=$2 ;;
			--listen) listens+=("$2") ;;
			--allow) allows+=("$2") ;;
			--secret-header)
				[[ $2 =~ ^[A-Za-z][A-Za-z0-9-]*$ ]] ||
					refuse "--secret-header: '$2' is not a header's name"
				secret_headers+=("$2")
				;;
			--size) size=$2 ;;
			--dataset) dataset=$2 ;;
			--dir) dir=$2 ;;
			--cacert) cacert=$2 ;;
			--user) user=$2 ;;
			--tls) tls=$2 ;;
			--strip-query) stripped+=("${2,,}") ;;
			esac
			shift
			;;
		*)
			if [[ $(type -t engine_option) == function ]] && (($# > 1)) &&
				engine_option "$1" "$2"; then
				shift
			else
				refuse "unknown option $1"
			fi
			;;
		esac
		shift
	done
	[[ $dir == /* ]] || dir=$PWD/$dir
	[[ $action == stop ]] || tier_check
}

# The tier's part of the disk, for --dataset: sets size_bytes (until then the size of tier and mounts
# together) and share (the mount option that goes with it). If all tiers together hold the dataset, each byte
# leaves the origin once. If they cannot, the mounts' caches use the same disk better, because they know the
# plans of loaders.
split_disk() {
	local whole part
	whole=$(bytes_of --dataset "$dataset")
	part=$(awk -v d="$whole" -v n="${#nodes[@]}" 'BEGIN {printf "%.0f", 1.05 * d / n}')
	((part > 16 * slice)) || part=$((16 * slice))
	((part <= size_bytes * 49 / 50)) || refuse "--dataset: the tiers of ${#nodes[@]} nodes cannot hold $dataset: that takes $(((part >> 20) + 1))M of each node's $size, and the mounts need a little of it, too. Mount without --tier: each node's cache then keeps more of what its loaders plan to read"
	size_bytes=$part share=" --cache-size $size" size=$(((part + 1048575) >> 20))M
}

# What the options say together. Sets size_bytes, sockets (ADDRESS:PORT each), tiers (the value of --tier).
tier_check() {
	local origin seen=' ' node found local_addresses address port network
	((${#origins[@]})) || refuse "which origin? --origin https://HOST"
	for origin in "${origins[@]}"; do
		split_origin "$origin"
		# A server is chosen by the name in Host, whatever the port.
		[[ $seen != *" $name "* ]] ||
			refuse "--origin: $name twice: origins with one name and several ports need a tier each"
		seen+="$name "
		[[ $scheme == http || $can == *tls-origin* ]] ||
			refuse "--origin $origin: $engine does not speak TLS to origins: take nginx or trafficserver"
	done
	for origin in ${stripped[@]+"${stripped[@]}"}; do
		[[ $can == *strip-query* ]] || refuse "--strip-query: not with $engine"
		[[ $seen == *" $origin "* ]] || refuse "--strip-query: $origin is the host of no --origin"
	done
	[[ $check_each == no || $can == *check-each* ]] || refuse "--check-each: not with $engine"
	[[ -z $tls || " $can " == *" tls "* ]] ||
		refuse "--tls: not with $engine: take nginx or trafficserver"
	[[ -z $cacert || -r $cacert ]] || refuse "--cacert: '$cacert' cannot be read"
	[[ -z $cacert ]] || cacert=$(realpath "$cacert")
	size_bytes=$(bytes_of --size "$size")
	((size_bytes >= 16 * slice)) || refuse "--size: $size is less than 64M"
	((${#nodes[@]})) || nodes=("127.0.0.1")
	share=''
	[[ ! $dataset ]] || split_disk

	mapfile -t local_addresses < <(hostname -I 2>/dev/null | tr -s ' ' '\n' | sed '/^$/d' || true)
	tiers='' all_nodes=()
	for node in "${nodes[@]}"; do
		split_host "$node" "$default_port"
		found=$(addresses_of "$address") || true
		[[ $found ]] || refuse \
			"--nodes: the name $address has no address here (getent ahosts $address)"
		! is_everywhere "$address" || refuse "--nodes: $address is no address of a node"
		# Debian's /etc/hosts gives this machine's own name 127.0.1.1.
		if ((${#nodes[@]} > 1 && ${#listens[@]} == 0)) && is_loopback "$(head -n 1 <<<"$found")"; then
			refuse "--nodes: $address is $(head -n 1 <<<"$found") here, where no other node can connect: give /etc/hosts the node's address on the network, or name nodes by their addresses"
		fi
		mapfile -t -O "${#all_nodes[@]}" all_nodes <<<"$found"
		tiers+=${tiers:+,}http${tls:+s}://$(bracketed "$address"):$port
		[[ -z $this || $this == "$node" || $this == "$address" ]] || continue
		if [[ -n $this ]] || is_here "$found"; then
			((${#only[@]})) || only=("$address" "$port" "$(head -n 1 <<<"$found")")
		fi
	done
	if ((${#listens[@]} == 0)); then
		((${#only[@]})) ||
			refuse "none of --nodes is this machine (addresses: ${local_addresses[*]-none}): give --this or --listen"
		sockets=("$(bracketed "${only[2]}"):${only[1]}")
		is_loopback "${only[2]}" || sockets+=("127.0.0.1:${only[1]}")
	else
		sockets=()
		for found in "${listens[@]}"; do
			split_host "${found/#\*/0.0.0.0}" "$default_port"
			if is_everywhere "$address"; then
				[[ $tls ]] || ((${#allows[@]})) || refuse \
					"--listen $found: a tier gives what it keeps to all that reach its port: listen at this node's address, or say who may connect (--allow 10.1.0.0/16, --tls DIR)"
				[[ $address == *:* ]] || address=0.0.0.0
			fi
			sockets+=("$(bracketed "$address"):$port")
		done
	fi
	certificate=${this:-${only[0]-localhost}}
	for network in ${allows[@]+"${allows[@]}"}; do
		[[ $network =~ ^[0-9a-fA-F.:]+(/[0-9]+)?$ ]] ||
			refuse "--allow: '$network' is no address or network such as 10.1.0.0/16"
		[[ $tls || ! $network =~ /0+$ ]] ||
			refuse "--allow $network lets everybody connect: only with --tls DIR"
	done
	((${#allows[@]})) ||
		mapfile -t allows < <(printf '%s\n' 127.0.0.0/8 ::1 "${all_nodes[@]}" | awk '!seen[$0]++')
	if [[ $tls ]]; then
		tls=$(realpath "$tls")
		for found in ca.crt "$certificate.crt" "$certificate.key"; do
			[[ -r $tls/$found ]] ||
				refuse "--tls: there is no $tls/$found (made by: certificates --nodes ... $tls)"
		done
	fi
}

is_here() { # ADDRESSES: whether one of them is this machine's
	local one
	for one in $1; do
		if is_loopback "$one" || [[ " ${local_addresses[*]-} " == *" $one "* ]]; then
			return 0
		fi
	done
	return 1
}

# Whether signatures are taken out of the queries for this origin. $1: its name.
is_stripped() { [[ " ${stripped[*]-} " == *" $1 "* ]]; }

# The user that the server runs as: the current one; for root the first that exists of --user, $@ and
# "nobody".
default_user() {
	local one
	if ((EUID != 0)); then
		id -un
		return
	fi
	for one in ${user:+"$user"} "$@" nobody; do
		if id -u "$one" >/dev/null 2>&1; then
			echo "$one"
			return
		fi
	done
	die "there is no user $1: give --user"
}

# The system's certificates, where distributions have them.
system_certificates() {
	local file
	for file in /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt \
		/etc/ssl/ca-bundle.pem /etc/ssl/cert.pem; do
		[[ ! -r $file ]] || { echo "$file" && return; }
	done
	die "there are no certificates of the system: give --cacert"
}

# Start and stop ---------------------------------------------------------------------------------------------

pidfile() { echo "$dir/tier.pid"; }

running() {
	local pid
	pid=$(cat "$(pidfile)" 2>/dev/null) && [[ $pid ]] && kill -0 "$pid" 2>/dev/null &&
		tr '\0' ' ' <"/proc/$pid/cmdline" | grep -qF -e --foreground && echo "$pid"
}

tier_stop() {
	local pid
	if ! pid=$(running); then
		echo "$engine: nothing runs with $dir"
		return
	fi
	kill -TERM "$pid"
	for _ in {1..300}; do
		kill -0 "$pid" 2>/dev/null || break
		sleep 0.1
	done
	! kill -0 "$pid" 2>/dev/null || die "process $pid does not end"
	echo "$engine: stopped"
}

# Runs the server until it ends or a signal ends it. Some servers look names up only when they start; for
# them, engine_watch watches the origins' addresses.
tier_run() {
	local command=() children=() server stopped=no rc=0
	mapfile -t command < <(engine_command)
	"${command[@]}" &
	server=$!
	trap 'stopped=yes; kill -TERM "$server" 2>/dev/null' TERM INT HUP
	[[ $(type -t engine_watch) != function ]] || engine_watch "$server" &
	local watch=$!
	while :; do
		rc=0
		wait "$server" || rc=$?
		# A signal to us interrupts the wait, and the server still runs.
		kill -0 "$server" 2>/dev/null || break
	done
	# Ends engine_watch, and the sleep that it may be in.
	read -ra children 2>/dev/null <"/proc/$watch/task/$watch/children" || true
	kill "$watch" ${children[@]+"${children[@]}"} 2>/dev/null || true
	rm -f "$(pidfile)"
	[[ $stopped == yes ]] || echo "$engine: the server ended with status $rc" >&2
	[[ $stopped == no ]] || rc=0
	exit "$rc"
}

answers() {
	local socket
	for socket in "${sockets[@]}"; do
		split_host "$socket" 0
		(exec 9<>"/dev/tcp/$address/$port") 2>/dev/null || return 1
	done
}

tier_write() {
	local program
	(umask 022 && mkdir -p "$dir")
	# A user who can write in $dir chooses which processes --stop ends, and what the server runs.
	[[ $(stat -L -c %u "$dir") == "$EUID" ]] || die "--dir: $dir is another user's: give a folder of your own"
	[[ -z $(find -L "$dir" -maxdepth 0 -perm /022) ]] ||
		die "--dir: others may write in $dir: chmod go-w $dir"
	for program in $programs; do
		command -v "$program" >/dev/null || die "$program is not installed (apt install $package)"
	done
	engine_config
}

tier_main() {
	local given=("$@") pid log command up=no
	PATH=$PATH:/usr/sbin:/sbin
	tier_options "$@"
	case $action in
	print)
		engine_print
		return
		;;
	unit)
		printf -v command ' %q' "${given[@]}"
		cat <<-UNIT
			[Unit]
			Description=Penstock: tier ($engine) of ${origins[*]}
			Wants=network-online.target
			After=network-online.target
			Before=systemd-user-sessions.service

			[Service]
			ExecStart=$(realpath "$0")${command/ --unit/} --foreground
			Restart=on-failure
			RestartSec=5
			KillMode=mixed
			LimitNOFILE=65536

			[Install]
			WantedBy=multi-user.target
		UNIT
		return
		;;
	stop)
		tier_stop
		return
		;;
	esac
	! pid=$(running) || die "process $pid already runs with $dir (--stop ends it)"
	tier_write
	if [[ $action == foreground ]]; then
		echo $$ >"$(pidfile)"
		tier_run
	fi
	log=$dir/tier.log
	setsid "$0" "${given[@]}" --foreground >"$log" 2>&1 </dev/null &
	pid=$!
	for _ in {1..600}; do
		kill -0 "$pid" 2>/dev/null ||
			die "the server does not start: $(tail -n 5 "$log" "$dir"/error.log 2>/dev/null)"
		# (nginx listens for a moment when it tests its configuration, before there is a pid.)
		if running >/dev/null && answers; then
			up=yes
			break
		fi
		sleep 0.1
	done
	[[ $up == yes ]] || die "the server does not listen at ${sockets[*]}: $(tail -n 5 "$log")"
	echo "$engine: listens at ${sockets[*]}, keeps $size in $dir, for ${allows[*]}"
	echo "$engine: stops with: $0 --dir $dir --stop"
	echo "penstock mount ... --tier $tiers --tier-cache $dir/cache$share"
}
