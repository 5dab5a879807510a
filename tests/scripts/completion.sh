#!/usr/bin/env bash
# bash completion offers every command, every option, and every value of options with a few values; and the
# programs accept all that is offered. That is tested by running the programs, not only by their --help.
. "$(dirname "$0")/../lib.sh"

# shellcheck source=scripts/bash-completion
. "$top_srcdir/scripts/bash-completion"
# Other tests mount and unmount meanwhile.
eval "all$(declare -f _penstock_mounts)"
_penstock_mounts() { all_penstock_mounts | grep -F "$T/" || true; }
export PENSTOCK_CONFIG=$T/penstock.conf
printf '[defaults]\ncache-size = 1G\n[imagenet]\n [ laion-400m ]\n' >"$PENSTOCK_CONFIG"

# Each program is asked once, as its answers do not change.
eval "ask$(declare -f _penstock_options)"
declare -A told_options=()
_penstock_options() {
	if [[ ${told_options["$*"]-} ]]; then
		printf '%s\n' "${told_options["$*"]}"
	else
		ask_penstock_options "$@"
	fi
}

words() { tr -s ' ' '\n' | sort | paste -s -d ' '; } # sorted, in one line

# offered WORD...: prints what is offered for the last word of a line.
offered() {
	COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
	_penstock
	if ((${#COMPREPLY[@]} < 2)); then
		printf '%s\n' "${COMPREPLY[*]}"
	else
		printf '%s\n' "${COMPREPLY[@]}" | sort | paste -s -d ' '
	fi
}

# Prints a program's error for the arguments and an unknown option, which keeps it from doing anything.
answer() {
	local said
	said=$(timeout 30 "$@" --no-such-option-at-all 2>&1 </dev/null || true)
	printf '%s\n' "${said%%$'\n'*}"
}
takes() { # WHAT COMMAND...: the program accepts the arguments
	local said
	said=$(answer "${@:2}")
	check "$1" [ "${said/no-such-option-at-all/}" != "$said" ]
}

check_values() { # ARGUMENT PROGRAM COMMAND OPTION
	local argument=$1 values told
	shift
	values=$(offered "$@" "")
	[[ $argument != *FILE* && $argument != DIR ]] || values=$(cd "$T/nothing" && offered "$@" "")
	told=$(answer "$@" nix)
	if [[ $told =~ "'nix' is none of "(.*) || $told =~ ": must be "([^ ]*\|[^ ]*)$ ]]; then
		told=${BASH_REMATCH[1]//[,|]/ }
		equal "$*: all accepted values are offered" "$(words <<<"$told")" "$values"
	fi
	for value in $values; do
		takes "$*: $value is accepted" "$@" "$value"
	done
}

check_options() { # PROGRAM COMMAND
	local letter name argument said
	told_options["$*"]=$(_penstock_options "$@")
	equal "$*: the options of --help are offered" \
		"$("$@" --help | grep -oE '^ *(-[a-zA-Z], )?--[a-z_-]+' | grep -o -- '--.*' | words)" \
		"$(offered "$@" --)"
	while read -r letter name argument; do
		[[ $name == --* && $name != --help ]] || continue
		if [[ $argument == - ]]; then
			takes "$* $name: the option exists, without a value" "$@" "$name"
		else
			said=$(timeout 30 "$@" "$name" 2>&1 </dev/null || true)
			check "$* $name: the option exists, with a value" [ "${said/needs/}" != "$said" ]
			check_values "$argument" "$@" "$name"
		fi
		[[ $letter == - ]] ||
			check "$* $letter: the same values are offered as for $name" \
				test "$(offered "$@" "$name" "")" = "$(offered "$@" "$letter" "")"
	done <<<"${told_options["$*"]}"
}

mkdir "$T/nothing" "$T/some" "$T/some/folder"
touch "$T/some/shard.tar"
programs=
for program in penstock penstock-loader; do
	[[ -x $top_builddir/$program ]] || continue
	programs+=" $program"
	commands=$(_penstock_commands "$program" | paste -s -d ' ')
	check "$program has commands" test -n "$commands"
	equal "$program: its commands and options are offered" "$(words <<<"$commands --help --version")" \
		"$(offered $program "")"
	for command in $commands; do
		check_options $program "$command"
	done
done
[[ $programs ]] || skip_all "no program is built"

cd "$T/some"
equal "the commands of penstock-slurm are offered" "check clean" \
	"$(offered "$top_srcdir/scripts/penstock-slurm" c)"
if [[ $programs == *penstock-loader* ]]; then
	equal "files are offered for shards" "folder shard.tar" "$(offered penstock-loader ls "")"
	equal "a value is completed after =" "f16 f32" "$(offered penstock-loader bench --dtype = f)"
	equal "all values are offered right after =" "nchw nhwc" "$(offered penstock-loader bench --layout =)"
	equal "nothing is offered for a number" "" "$(offered penstock-loader bench --batch "")"
	equal "only folders are offered for a folder" "folder" "$(offered penstock-loader index --dir "")"
	equal "an option is completed after another option's value" \
		"--shuffle-window" "$(offered penstock-loader bench --order window --shu)"
fi
[[ $programs == *"penstock "* || $programs == *penstock ]] || exit 0
equal "mounts of the configuration are offered" "imagenet laion-400m" "$(offered penstock mount "")"
equal "mounts are completed by their beginning" "laion-400m" "$(offered penstock mount lai)"
equal "folders are offered for the mountpoint" "folder shard.tar" "$(offered penstock mount imagenet "")"
equal "options in a list after -o are completed" \
	"ro,cache-dir ro,cache-size" "$(offered penstock mount x /y -o ro,cache-)"
if [[ -c /dev/fuse ]] && ((EUID == 0)); then
	mkdir "$T/a mount"
	mount_penstock "$T/some/" --cache-dir "$T/cache"
	check "mountpoints are offered for umount" grep -qw -- "$MNT" <(offered penstock umount "$T/")
fi
# A mount's name is only a word, whatever it contains.
hostile="/mnt/\$(touch $T/run)"
_penstock_mounts() { echo "$hostile"; }
equal "a name with a command is offered as it is" "$hostile" "$(offered penstock warm /mnt)"
check_not "that command is not run" test -e "$T/run"
