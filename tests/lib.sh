# shellcheck shell=bash
# What the shell tests share. A test is a bash script that begins with
#
#     . "$(dirname "$0")/../lib.sh"
#     requires mount nginx
#
# and then reports with check, equal, pass and fail. It runs inside a private directory ($T), in a process
# group of its own, under a time limit. However the test ends, an outer shell unmounts what the test mounted
# below $T, kills the processes that it started (found by an environment variable, so daemons, too) and
# removes $T: a hung mount fails one test and not the run.
#
# From the environment: top_srcdir, top_builddir (set by `make check`), TMPDIR, PS_TEST_TIMEOUT (seconds),
# PS_TEST_KEEP=1 (keep $T), PENSTOCK_TEST_QUICK=1 (leave out slow tests), PENSTOCK_TEST_LONG=1 (repeat more;
# see long()).

set -euo pipefail
export LC_ALL=C PYTHONDONTWRITEBYTECODE=1
unset http_proxy https_proxy all_proxy no_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY
unset CURL_CA_BUNDLE SSL_CERT_FILE SSL_CERT_DIR NETRC

ps_lib_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
top_srcdir=$(cd "${top_srcdir:-$ps_lib_dir/..}" && pwd)
top_builddir=$(cd "${top_builddir:-$PWD}" && pwd)
export top_srcdir top_builddir
PATH=$top_builddir:$PATH:/usr/sbin:/sbin
python=/usr/bin/python3

# The outer shell --------------------------------------------------------------------------------------------

# Prints a line "DEVICE MOUNTPOINT TYPE" for each mount below DIR, the latest first. (The optional fields of
# mountinfo end with a "-".)
ps_mounts_below() {
	awk -v below="$1/" 'index($5 "/", below) == 1 {
		for (i = 7; $i != "-"; i++);
		print $3, $5, $(i + 1)
	}' /proc/self/mountinfo | tac
}

# Aborting a FUSE connection answers every request that hangs in it; only then does unmounting always work.
ps_unmount_all() {
	local device where kind
	while read -r device where kind; do
		if [[ $kind == fuse* ]]; then
			echo 1 2>/dev/null >"/sys/fs/fuse/connections/${device#*:}/abort" || true
		fi
		umount -l "$where" 2>/dev/null || fusermount3 -uz "$where" 2>/dev/null || true
	done < <(ps_mounts_below "$1")
}

# Daemons have left the process group, so they are found by their environment. nginx overwrites its
# environment with its title: nginx is found by its command line, and its workers as its children.
ps_kill_started() {
	local dir=$1 file pid children victims=() processes=(/proc/[0-9]*)
	while read -r file; do
		pid=${file#/proc/}
		pid=${pid%%/*}
		[[ $pid != "$$" ]] || continue
		children=()
		read -ra children 2>/dev/null <"/proc/$pid/task/$pid/children" || true
		victims+=("$pid" "${children[@]}")
	done < <(
		grep -lszFx "PS_TEST_DIR=$dir" "${processes[@]/%//environ}" || true
		grep -lszF "$dir/" "${processes[@]/%//cmdline}"
	)
	((${#victims[@]} == 0)) || kill -KILL "${victims[@]}" 2>/dev/null || true
}

ps_outer() {
	local dir inner timer rc=0 limit=${PS_TEST_TIMEOUT:-120} count
	dir=$(mktemp -d "${TMPDIR:-/tmp}/penstock-test-XXXXXX")
	dir=$(cd "$dir" && pwd -P)
	PS_TEST_DIR=$dir setsid bash "$0" "$@" </dev/null &
	inner=$!
	sleep "$limit" >/dev/null 2>&1 &
	timer=$!
	# shellcheck disable=SC2064
	trap "kill $timer 2>/dev/null; ps_cleanup '$dir' $inner; exit 143" INT TERM HUP
	wait -n "$inner" "$timer" || true
	if kill -0 "$inner" 2>/dev/null; then
		count=$(cat "$dir/.count" 2>/dev/null || echo 0)
		echo "not ok $((count + 1)) - ${0##*/} ends within $limit s"
		echo "1..$((count + 1))"
		ps_show_logs "$dir"
		rc=1
	fi
	kill "$timer" 2>/dev/null || true
	ps_cleanup "$dir" "$inner" || rc=$?
	exit "$rc"
}

ps_cleanup() {
	local dir=$1 inner=$2 rc=0
	ps_unmount_all "$dir"
	kill -KILL -- "-$inner" 2>/dev/null || true
	wait "$inner" 2>/dev/null || rc=$?
	# Each round kills mount commands that still run; the next one unmounts what they mounted meanwhile.
	for _ in {1..20}; do
		ps_unmount_all "$dir"
		ps_kill_started "$dir"
		[[ $(ps_mounts_below "$dir") ]] || break
		sleep 0.1
	done
	if [[ $(ps_mounts_below "$dir") ]]; then
		echo "Bail out! ${0##*/} leaves mounted: $(ps_mounts_below "$dir" | tr '\n' ';')"
		rc=1
	fi
	if [[ ${PS_TEST_KEEP-} == 1 ]]; then
		echo "# kept $dir"
	else
		rm -rf --one-file-system "$dir" 2>/dev/null || { sleep 0.3 && rm -rf --one-file-system "$dir"; } || true
	fi
	return "$rc"
}

ps_show_logs() {
	local log
	for log in "$1"/*.log "$1"/nginx/error.log; do
		[[ -s $log ]] || continue
		echo "# -- ${log#"$1"/}:"
		tail -n 30 "$log" | cut -c 1-400 | sed 's/^/#   /'
	done
}

[[ -n ${PS_TEST_DIR-} ]] || ps_outer "$@"

# TAP --------------------------------------------------------------------------------------------------------

T=$PS_TEST_DIR
export TMPDIR=$T
# Sanitizer reports of a daemon are written to files, which fail the test.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}suppressions=$top_srcdir/tests/asan.supp:log_path=$T/sanitizer
export UBSAN_OPTIONS=${UBSAN_OPTIONS:+$UBSAN_OPTIONS:}print_stacktrace=1:log_path=$T/sanitizer
export TSAN_OPTIONS=${TSAN_OPTIONS:+$TSAN_OPTIONS:}suppressions=$top_srcdir/tests/tsan.supp:log_path=$T/sanitizer
ps_count=0
ps_failed=0
ps_ended=no

ps_number() {
	ps_count=$((ps_count + 1))
	echo "$ps_count" >"$T/.count"
}

pass() {
	ps_number
	echo "ok $ps_count - $1"
}

# fail WHAT [REASON...]: reports, shows the reasons and the ends of the logs, and goes on.
fail() {
	ps_number
	ps_failed=$((ps_failed + 1))
	echo "not ok $ps_count - $1"
	shift
	(($# == 0)) || printf '%s\n' "$@" | cut -c 1-600 | sed 's/^/# /'
	ps_show_logs "$T"
}

# die WHAT [REASON...]: reports a failure and ends the test.
die() {
	fail "$@"
	exit 1
}

skip() {
	ps_number
	echo "ok $ps_count - $1 # SKIP $2"
}

skip_all() {
	ps_ended=yes
	echo "1..0 # SKIP $*"
	exit 0
}

# Runs a command, or a function, which ends at its first failing command. Sets out and rc of the caller.
ps_run() {
	set +e
	out=$(
		set -e
		"$@" 2>&1
	)
	rc=$?
	set -e
}

# check WHAT COMMAND...: the command must succeed; if it fails, its output is shown.
check() {
	local what=$1 out rc
	shift
	ps_run "$@"
	if ((rc == 0)); then
		pass "$what"
	else
		fail "$what" "exit status $rc of: $*" "$(tail -n 25 <<<"$out")"
	fi
}

# check_not WHAT COMMAND...: the command must fail by itself (exit status 1 to 123).
check_not() {
	local what=$1 out rc
	shift
	ps_run "$@"
	if ((rc > 0 && rc < 124)); then
		pass "$what"
	else
		fail "$what" "exit status $rc of: $*" "$(tail -n 25 <<<"$out")"
	fi
}

# equal WHAT EXPECTED SEEN
equal() {
	if [[ $2 == "$3" ]]; then
		pass "$1"
	else
		fail "$1" "expected: $2" "    seen: $3"
	fi
}

# at_most WHAT LIMIT SEEN, at_least WHAT LIMIT SEEN: decimal numbers.
at_most() {
	if awk -v limit="$2" -v seen="$3" 'BEGIN {exit !(seen != "" && seen + 0 <= limit + 0)}'; then
		pass "$1"
	else
		fail "$1" "expected at most $2, seen: $3"
	fi
}
at_least() {
	if awk -v limit="$2" -v seen="$3" 'BEGIN {exit !(seen != "" && seen + 0 >= limit + 0)}'; then
		pass "$1"
	else
		fail "$1" "expected at least $2, seen: $3"
	fi
}

ps_on_error() {
	ps_error="$1, line $2: status $3 of: $4"
}
set -o errtrace # also in functions, in which `set -e` ends the test, too
trap 'ps_on_error "${BASH_SOURCE[0]##*/}" "$LINENO" "$?" "$BASH_COMMAND"' ERR

ps_on_exit() {
	local rc=$?
	trap - EXIT ERR
	set +e
	[[ $ps_ended == no ]] || exit "$rc"
	local report
	for report in "$T"/sanitizer.*; do
		[[ ! -s $report ]] || fail "the sanitizers find nothing" "$(head -n 60 "$report")"
	done
	if ((rc != 0 && ps_failed == 0)); then
		fail "${0##*/} runs to its end" "${ps_error-exit status $rc}"
	elif ((ps_count == 0)); then
		fail "${0##*/} checks something"
	fi
	echo "1..$ps_count"
	exit $((ps_failed > 0))
}
trap ps_on_exit EXIT

# What a test needs ------------------------------------------------------------------------------------------

# requires NAME...: skips the whole test where something is missing. NAME is mount, loader, nginx, nginx-lua,
# penstock, root, mount-namespace, terminal, slow (skipped by --quick), python:MODULE or a program.
requires() {
	local name
	for name; do
		case $name in
		mount)
			[[ -x $top_builddir/penstock ]] || skip_all "penstock is not built"
			[[ -c /dev/fuse ]] || skip_all "there is no /dev/fuse"
			((EUID == 0)) || [[ -r /dev/fuse && -w /dev/fuse ]] || skip_all "/dev/fuse is not for this user"
			((EUID == 0)) || command -v fusermount3 >/dev/null || skip_all "fusermount3 is not installed"
			;;
		penstock) [[ -x $top_builddir/penstock ]] || skip_all "penstock is not built" ;;
		loader) [[ -x $top_builddir/penstock-loader ]] || skip_all "penstock-loader is not built" ;;
		nginx) command -v nginx >/dev/null || skip_all "nginx is not installed" ;;
		nginx-lua)
			command -v nginx >/dev/null || skip_all "nginx is not installed"
			[[ -n $(ps_nginx_module ngx_http_lua_module) ]] || skip_all "nginx has no lua module"
			;;
		mount-namespace)
			unshare -m --propagation private true 2>/dev/null ||
				skip_all "no mount namespace can be made (in a chroot, or not permitted)"
			;;
		terminal) has_terminal || skip_all "no pseudo-terminal can be opened (/dev/pts)" ;;
		root) ((EUID == 0)) || skip_all "needs root" ;;
		slow) [[ ${PENSTOCK_TEST_QUICK-} != 1 ]] || skip_all "slow, left out by --quick" ;;
		python:*)
			# (Not by importing it: torch takes seconds.)
			"$python" -c 'import importlib.util, sys; sys.exit(not importlib.util.find_spec(sys.argv[1]))' "${name#python:}" ||
				skip_all "$python has no module ${name#python:}"
			;;
		*) command -v "$name" >/dev/null || skip_all "$name is not installed" ;;
		esac
	done
}

# long: true if the parts of a test that only repeat or enlarge it are wanted (scripts/check --all).
long() { [[ ${PENSTOCK_TEST_LONG-} == 1 ]]; }

has_terminal() { "$python" -c 'import os; os.openpty()' 2>/dev/null; }

# mock_kernels: gives the mock CUDA driver a file in place of kernels if the library was built without nvcc.
mock_kernels() {
	grep -q 'define HAVE_CUDA_KERNELS 1' "$top_builddir/config.h" || {
		echo kernels >"$T/kernels"
		export PENSTOCK_CUDA_KERNELS=$T/kernels
	}
}

# sanitized FILE...: whether one of the files was built with a sanitizer. (No pipe into grep -q: grep may end
# first, and ldd would fail.)
sanitized() {
	local libraries
	libraries=$(ldd "$@" 2>/dev/null || true)
	[[ $libraries =~ lib(a|t|ub)san ]]
}

# pip_venv NAME PACKAGE...: makes $top_builddir/tests-cache/NAME, an environment with packages that Debian
# lacks. All tests share it. If that fails, the reason is in $T/pip.log. (The environment gets neither pip nor
# bytecode: they would take most of the time.)
pip_venv() {
	local venv=$top_builddir/tests-cache/$1 limit=$((${PS_TEST_TIMEOUT:-120} * 3 / 4))
	shift
	mkdir -p "${venv%/*}"
	(
		flock 9
		[[ ! -e $venv/ready ]] || exit 0
		rm -rf "$venv"
		"$python" -m venv --without-pip --system-site-packages "$venv" &&
			timeout "$limit" "$venv/bin/python" -m pip install -q --no-compile --disable-pip-version-check "$@" &&
			touch "$venv/ready"
	) 9>"$venv.lock" >"$T/pip.log" 2>&1
}

# pip_python NAME PACKAGE...: sets `python` to the Python of such an environment.
pip_python() {
	pip_venv "$@" || skip_all "${*:2} cannot be installed: $(tail -n 1 "$T/pip.log")"
	python=$top_builddir/tests-cache/$1/bin/python
}
# has_penstock_python: makes `import penstock` in $python load the package of this build. If that fails, the
# reason is in no_python.
has_penstock_python() {
	local module=$top_builddir/loader/python/.libs/_penstock.so
	no_python=
	[[ -e $module ]] || no_python="the Python module was not built"
	[[ $no_python ]] || ! sanitized "$module" || no_python="the Python module has sanitizers"
	[[ ! $no_python ]] || return 1
	mkdir -p "$T/python/penstock"
	ln -sf "$module" "$top_srcdir"/loader/python/penstock/*.py "$T/python/penstock/"
	export PYTHONPATH=$T/python
}
penstock_python() { has_penstock_python || skip_all "$no_python"; }
webdataset_python() { pip_python webdataset webdataset; }

# nginx ------------------------------------------------------------------------------------------------------

ps_nginx_module() {
	local dir
	for dir in /usr/lib/nginx/modules /usr/lib64/nginx/modules /usr/share/nginx/modules; do
		[[ ! -e $dir/$1.so ]] || { echo "$dir/$1.so" && return; }
	done
}

# A port that nothing listens at, and that no other test of this build has been given which still runs: its server
# may be down at the moment.
free_port() {
	local given=$top_builddir/tests/ports port owner kept=()
	# shellcheck disable=SC2094 # it is read before it is written, under its lock
	{
		flock 9
		while read -r port owner; do
			! kill -0 "$owner" 2>/dev/null || kept+=("$port $owner")
		done <"$given"
		while :; do
			port=$((20000 + (RANDOM << 2 ^ RANDOM) % 12000))
			[[ " ${kept[*]} " != *" $port "* ]] || continue
			(exec 8<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
		done
		printf '%s\n' "${kept[@]}" "$port $$" >"$given"
	} 9>>"$given"
	echo "$port"
}

# start_nginx [DIR]: serves DIR [$T/www] on loopback. Sets ORIGIN (http://127.0.0.1:PORT), ORIGIN_TLS
# (https://localhost:PORT with the CA in $T/nginx/ca.pem) and ORIGIN_MUTUAL (the same, for clients that have
# the certificate c.crt with the key c.key). The log is $T/nginx/access.log, a line a request: method, path,
# status, body bytes, range. Locations, each with the same files:
#   /            HTML listing            /json/      JSON listing            /basic/   user "user", password "pass:word"
#   /hub/        302 to /old/; once $T/nginx/moved exists, 302 to /new/, and /old/ answers 403
#   /flaky/      503 to 2 of 3 requests  /norange/   200 to ranges           /token/   needs the header X-Token: secret
#   /json/closed/ 403 while $T/nginx/closed exists
#   /redir/      302 to /                /slow/      200 KB/s a request      /noetag/  no ETag
#   /noversion/  neither ETag nor Last-Modified, 20 MB/s a request
#   /busy/       503 while $T/nginx/busy exists      /stall/     no answer to a range while $T/nginx/stall exists
#   /cookie/     302 to the same name with a cookie, until that comes back
#   /raw/        302 to /; the Location header has the name's bytes unescaped
#   /limit/      20 MB/s a request       /gz/        would gzip if asked     /403/     answers 403
#   /badrange/   two of three range requests are answered with other bytes than asked for
#   /cut/        every other range request is answered with half of its bytes
#   /login/      a login page in place of every file
#   /head500/    500 to HEAD
#   /capped/     gives the first 100,000 bytes of a range, /capped9/ the first 9
# /flaky/, /stall/, /badrange/, /cut/, /login/, /head500/ and /capped/ are missing if nginx has no lua.
start_nginx() {
	local www=${1:-$T/www} dir=$T/nginx try
	mkdir -p "$dir/tmp" "$www"
	[[ -e $dir/s.crt ]] || ps_make_certificates "$dir"
	echo "user:$(openssl passwd -apr1 pass:word)" >"$dir/htpasswd"
	: >"$dir/access.log"
	((EUID != 0)) || chmod 755 "$T"
	for try in 1 2 3 4 5; do
		nginx_port=$(free_port) nginx_tls_port=$(free_port) nginx_mutual_port=$(free_port)
		# On a port that is listed twice, nginx would speak TLS.
		[[ $nginx_port != "$nginx_tls_port" && $nginx_port != "$nginx_mutual_port" && $nginx_tls_port != "$nginx_mutual_port" ]] ||
			continue
		ps_nginx_conf "$dir" "$(cd "$www" && pwd -P)" >"$dir/nginx.conf"
		if nginx -p "$dir/" -c "$dir/nginx.conf" >"$dir/start.log" 2>&1; then
			export ORIGIN=http://127.0.0.1:$nginx_port
			export ORIGIN_TLS=https://localhost:$nginx_tls_port ORIGIN_MUTUAL=https://localhost:$nginx_mutual_port
			return
		fi
	done
	die "nginx starts" "try $try" "$(cat "$dir/start.log" "$dir/error.log")"
}

# kill_nginx: kills nginx while it may be sending. restart_nginx: starts nginx again, on the same ports.
kill_nginx() {
	local master workers
	master=$(cat "$T/nginx/nginx.pid")
	read -ra workers <"/proc/$master/task/$master/children" || true # the file has no end of line
	kill -KILL "$master" "${workers[@]}"
	rm "$T/nginx/nginx.pid"
}
restart_nginx() {
	nginx -p "$T/nginx/" -c "$T/nginx/nginx.conf" >"$T/nginx/start.log" 2>&1
}

# A CA of our own, a certificate for localhost signed by it, and one for a client: c.crt with the key c.key.
# p.key is c.key encrypted with the password "opensesame".
ps_make_certificates() (
	cd "$1"
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout ca.key -out ca.pem -days 2 \
		-subj "/CN=Test CA" -addext basicConstraints=critical,CA:TRUE
	openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout s.key -out s.csr -subj /CN=localhost
	openssl x509 -req -in s.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -out s.crt \
		-extfile <(echo subjectAltName=DNS:localhost,IP:127.0.0.1)
	openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout c.key -out c.csr -subj /CN=client
	openssl x509 -req -in c.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -out c.crt
	openssl ec -in c.key -aes256 -passout pass:opensesame -out p.key
) >"$1/certificates.log" 2>&1

ps_nginx_conf() {
	local dir=$1 www=$2 ndk lua
	ndk=$(ps_nginx_module ndk_http_module)
	lua=$(ps_nginx_module ngx_http_lua_module)
	[[ -z $lua ]] || echo "${ndk:+load_module $ndk; }load_module $lua;"
	((EUID != 0)) || echo "user root;"
	cat <<-CONF
		worker_processes 1; pid nginx.pid; error_log $dir/error.log notice; daemon on;
		env PS_TEST_DIR;
		events { worker_connections 4096; }
		http {
		default_type application/octet-stream;
		types { text/html html; text/plain txt; application/json json; }
		log_format traffic '\$request_method \$uri \$status \$body_bytes_sent \$http_range';
		access_log $dir/access.log traffic;
		client_body_temp_path tmp/b; proxy_temp_path tmp/p; fastcgi_temp_path tmp/f;
		uwsgi_temp_path tmp/u; scgi_temp_path tmp/s;
		sendfile on; tcp_nodelay on; keepalive_requests 1000000;
		${lua:+lua_shared_dict counters 1m;}
		ssl_certificate $dir/s.crt; ssl_certificate_key $dir/s.key;
		server {
		listen 127.0.0.1:$nginx_mutual_port ssl; server_name localhost; root $www;
		ssl_client_certificate $dir/ca.pem; ssl_verify_client on;
		location / { autoindex on; }
		}
		server {
		listen 127.0.0.1:$nginx_port backlog=1024; listen 127.0.0.1:$nginx_tls_port ssl; server_name localhost;
		root $www;
		location / { autoindex on; }
		location /json/ { alias $www/; autoindex on; autoindex_format json; }
		location /json/closed/ {
			if (-e $dir/closed) { return 403; }
			alias $www/closed/; autoindex on; autoindex_format json;
		}
		location /basic/ { alias $www/; autoindex on; auth_basic x; auth_basic_user_file $dir/htpasswd; }
		location /token/ { alias $www/; autoindex on; if (\$http_x_token != "secret") { return 403; } }
		location /listed/ {
			alias $www/; autoindex on; autoindex_format json;
			set \$may "\$uri:\$http_x_token"; if (\$may ~ "[.]bin:(?!(one|two)\$)") { return 403; }
		}
		location /signed/ { alias $www/; set \$may "\$request_method:\$arg_signature"; if (\$may !~ "^GET:(one|two)\$") { return 403; } }
		location /403/ { return 403; }
		location /norange/ { alias $www/; autoindex on; max_ranges 0; }
		location /noetag/ { alias $www/; autoindex on; etag off; }
		location /noversion/ { alias $www/; autoindex on; limit_rate 20m; etag off; add_header Last-Modified ""; }
		location /gz/ { alias $www/; autoindex on; gzip on; gzip_types *; gzip_min_length 1; }
		location /slow/ { alias $www/; autoindex on; limit_rate 200k; }
		location /limit/ { alias $www/; autoindex on; limit_rate 20m; }
		location ~ ^/raw(/.*)\$ { return 302 \$1; }
		location /cookie/ {
			alias $www/; autoindex on;
			if (\$cookie_login = "") {
				add_header Set-Cookie "login=1"; return 302 \$request_uri;
			}
		}
		location /redir/ { rewrite ^/redir/(.*)\$ /\$1 redirect; }
		location /hub/ {
			if (-e $dir/moved) { rewrite ^/hub/(.*)\$ /new/\$1 redirect; }
			rewrite ^/hub/(.*)\$ /old/\$1 redirect;
		}
		location /old/ { alias $www/; if (-e $dir/moved) { return 403; } }
		location /new/ { alias $www/; }
		location /busy/ { alias $www/; autoindex on; if (-e $dir/busy) { return 503; } }
	CONF
	[[ -z $lua ]] || cat <<-CONF
		location /flaky/ {
			access_by_lua_block {
				if ngx.shared.counters:incr("flaky", 1, 0) % 3 ~= 0 then ngx.header["Retry-After"] = "0"; return ngx.exit(503) end
			}
			alias $www/; autoindex on;
		}
		location /stall/ {
			access_by_lua_block {
				while ngx.req.get_method() == "GET" and ngx.var.http_range do
					local f = io.open("$dir/stall")
					if not f then break end
					f:close(); ngx.sleep(0.05)
				end
			}
			alias $www/; autoindex on;
		}
		location /badrange/ {
			rewrite_by_lua_block {
				if ngx.var.http_range and ngx.shared.counters:incr("badrange", 1, 0) % 3 ~= 0 then return ngx.exec("@badrange") end
			}
			alias $www/; autoindex on;
		}
		location @badrange {
			content_by_lua_block {
				local first, last = ngx.var.http_range:match("bytes=(%d+)-(%d+)")
				first, last = tonumber(first), tonumber(last)
				local f = io.open("$www/" .. ngx.var.uri:match("^/badrange/(.*)"), "rb")
				local size = f:seek("end"); f:seek("set", first + 1)
				local body = f:read(last - first + 1) or ""; f:close()
				ngx.status = 206
				ngx.header["Content-Range"] = string.format("bytes %d-%d/%d", first + 1, first + #body, size)
				ngx.header["Content-Length"] = #body
				ngx.print(body)
			}
		}
		location /cut/ {
			rewrite_by_lua_block {
				if ngx.var.http_range and ngx.shared.counters:incr("cut", 1, 0) % 2 == 1 then return ngx.exec("@cut") end
			}
			alias $www/; autoindex on;
		}
		location /login/ { default_type text/html; return 200 "<html>please log in</html>"; }
		location /head500/ { alias $www/; autoindex on; if (\$request_method = HEAD) { return 500; } }
		location ~ ^/capped(9?)/(.*) {
			set \$capped_most \$1; set \$capped_name \$2;
			rewrite_by_lua_block {
				if ngx.var.http_range then return ngx.exec("@capped") end
			}
			alias $www/\$2; autoindex on;
		}
		location @capped {
			content_by_lua_block {
				local most = ngx.var.capped_most == "9" and 9 or 100000
				local first, last = ngx.var.http_range:match("bytes=(%d+)-(%d+)")
				first, last = tonumber(first), tonumber(last)
				local f = io.open("$www/" .. ngx.unescape_uri(ngx.var.capped_name), "rb")
				local size = f:seek("end"); f:seek("set", first)
				local body = f:read(math.min(last - first + 1, most)); f:close()
				ngx.status = 206
				ngx.header["Content-Range"] = string.format("bytes %d-%d/%d", first, first + #body - 1, size)
				ngx.header["Content-Length"] = #body
				ngx.print(body)
			}
		}
		location @cut {
			content_by_lua_block {
				local first, last = ngx.var.http_range:match("bytes=(%d+)-(%d+)")
				first, last = tonumber(first), tonumber(last)
				local f = io.open("$www/" .. ngx.var.uri:match("^/cut/(.*)"), "rb")
				local size = f:seek("end"); f:seek("set", first)
				local body = f:read(math.floor((last - first + 1) / 2)); f:close()
				local s = ngx.req.socket(true)
				s:send(string.format("HTTP/1.1 206 Partial Content\\r\\nContent-Length: %d\\r\\nContent-Range: bytes %d-%d/%d\\r\\n\\r\\n",
					last - first + 1, first, last, size) .. body)
			}
		}
	CONF
	echo "} }"
}

# origin_bytes [PATH-PREFIX]: body bytes that nginx sent for GETs below the prefix since it started, or since
# origin_forget. nginx logs a request when the request ends, so call this when all reads are answered.
origin_bytes() {
	awk -v prefix="${1:-/}" '$1 == "GET" && index($2, prefix) == 1 {sum += $4} END {printf "%.0f\n", sum}' \
		"$T/nginx/access.log"
}
origin_forget() {
	: >"$T/nginx/access.log"
}

# Data -------------------------------------------------------------------------------------------------------

# make_shards DIR COUNT NBYTES [SEED]: DIR/shard-000000.tar ... of about NBYTES each, tars of samples (.jpg,
# .cls, .txt) with pseudo-random content. The same arguments give the same bytes.
make_shards() {
	"$python" "$top_srcdir/tests/fs/make_shards.py" "$@"
}

# sha_manifest DIR: "SHA256  PATH" of each file, in name order.
sha_manifest() (
	cd "$1"
	find . -type f -print0 | sort -z | xargs -0 -r sha256sum
)

# make_tree DIR: a small dataset of the sizes where block arithmetic goes wrong: empty, 1 byte, around 1 MiB,
# odd. Also writes $T/manifest.
make_tree() {
	local size
	make_shards "$1" 2 3333333
	mkdir -p "$1/sub/deep"
	for size in 0 1 4096 1048575 1048576 1048577 7654321; do
		random_file "$1/sub/deep/$size.bin" "$size"
	done
	echo "a name with blanks, 100% & more" >"$1/sub/a b%20+&#.txt"
	sha_manifest "$1" >"$T/manifest"
}

# random_file PATH NBYTES [SEED]: the bytes depend on NBYTES and SEED alone.
random_file() {
	"$python" -c 'import random, sys
sys.stdout.buffer.write(random.Random(sys.argv[2]).randbytes(int(sys.argv[1])))' "$2" "${3-$2}" >"$1"
}

# read_tree MODE [DIR [READERS]]: checks that each file of $T/manifest below DIR [$MNT] has its
# checksum. See read_tree.py.
read_tree() {
	"$python" "$top_srcdir/tests/fs/read_tree.py" "$1" "${2:-$MNT}" "$T/manifest" "${3:-1}"
}

# Disks ------------------------------------------------------------------------------------------------------

# make_disk DIR SIZE [MOUNT-OPTION]: an ext4 of its own, kept in DIR.img, mounted at DIR. Skips the test if
# that is not possible. mount_disk DIR [MOUNT-OPTION] mounts it again.
make_disk() {
	mkdir -p "$1"
	truncate -s "$2" "$1.img"
	if ! mkfs.ext4 -q -F -b 4096 "$1.img" >/dev/null 2>&1 || ! mount_disk "$1" "${3-}" 2>/dev/null; then
		skip_all "a file system in a file cannot be made here"
	fi
}
mount_disk() {
	mount -o "loop${2:+,$2}" "$1.img" "$1"
}

# cut_power DIR: the file system stops at once, and what it had not yet written to its disk is lost.
cut_power() {
	"$python" -c 'import fcntl, os, struct, sys
EXT4_IOC_SHUTDOWN, NOLOGFLUSH = 0x8004587D, 2
fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), EXT4_IOC_SHUTDOWN, struct.pack("I", NOLOGFLUSH))' "$1"
}

# Mounts -----------------------------------------------------------------------------------------------------

# mount_penstock SOURCE [OPTION...]: mounts SOURCE at $MNT [$T/mnt] with the cache in $CACHE [$T/cache].
MNT=$T/mnt
CACHE=$T/cache
mount_penstock() {
	local source=$1
	shift
	mkdir -p "$MNT"
	timeout -k 5 60 penstock mount "$source" "$MNT" --cache-dir "$CACHE" --log "$T/penstock.log" "$@"
}

# A daemon that writes to a busy disk may take longer to end than `penstock umount` waits: that is no failure
# here.
umount_penstock() {
	timeout -k 5 30 penstock umount "$MNT" || { ! is_mounted && wait_until 30 no_daemon; }
}

# forget_others_mounts: in a mount namespace of its own, a test unmounts its copies of other tests' mounts: they
# would keep the originals alive.
forget_others_mounts() {
	local where
	while read -r where; do # as the kernel writes it: \040 is a space
		umount -l "$(printf '%b' "$where")" || ! is_mounted "$where" || return
	done < <(awk -v own="$T/" '$3 ~ /^fuse/ && index($2, own) != 1 {print $2}' /proc/self/mounts)
}

is_mounted() {
	awk -v where="${1:-$MNT}" '$5 == where {found = 1} END {exit !found}' /proc/self/mountinfo
}

# daemon_pid: prints the process ID of a penstock process that this test started, but not of a keeper or
# helper; fails if there is none.
daemon_pid() {
	local file pid comm
	while read -r file; do
		pid=${file#/proc/}
		pid=${pid%/environ}
		{ read -r comm <"/proc/$pid/comm"; } 2>/dev/null || continue
		if [[ $comm == *penstock* && $comm != penstock-keeper && $comm != penstock-helper &&
			$comm != penstock-log ]]; then
			echo "$pid"
			return
		fi
	done < <(grep -lszFx "PS_TEST_DIR=$T" /proc/[0-9]*/environ)
	return 1
}

# (The daemon of a failed mount may still be ending.)
no_daemon() { ! daemon_pid >/dev/null; }

# kill_daemon [PID]: ends the daemon together with its keeper, so that no other daemon takes its mounts over.
kill_daemon() {
	local pid=${1-} parent comm=
	[[ $pid ]] || pid=$(daemon_pid)
	parent=$(awk '/^PPid:/ {print $2}' "/proc/$pid/status")
	read -r comm 2>/dev/null <"/proc/$parent/comm" || true
	[[ $comm != penstock-keeper ]] || kill -KILL "$parent"
	kill -KILL "$pid" 2>/dev/null || true
}

# Ends daemon and keeper as a crash of the machine would, and removes the dead mount.
kill_penstock() {
	local pid
	pid=$(daemon_pid)
	kill_daemon "$pid"
	while kill -0 "$pid" 2>/dev/null; do sleep 0.02; done
	umount -l "$MNT" 2>/dev/null || fusermount3 -uz "$MNT"
}

# drop_page_cache [DIR]: makes the kernel forget the pages of the files below DIR [$MNT], so that the next
# read asks the daemon. Other files keep their pages: other tests run at the same time.
drop_page_cache() {
	"$python" "$top_srcdir/tests/fs/forget_pages.py" "${1:-$MNT}"
}

stats() {
	jq -r "$1" "$MNT/.penstock/stats"
}

# milliseconds COMMAND...: prints how long the command took, also if it failed.
milliseconds() {
	local start=${EPOCHREALTIME/./} end
	"$@" >"$T/milliseconds.out" 2>&1 || true
	end=${EPOCHREALTIME/./}
	echo $(((end - start) / 1000))
}

# wait_until SECONDS COMMAND...: repeats the command until it succeeds; fails after SECONDS.
wait_until() {
	local start=$SECONDS end=$((SECONDS + $1))
	shift
	until "$@" >/dev/null 2>&1; do
		((SECONDS < end)) || return 1
		if ((SECONDS < start + 2)); then sleep 0.05; else sleep 0.2; fi # looking takes time, too
	done
}
