#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/process.h"
#include "base/size.h"
#include "base/strbuf.h"
#include "cli/commands.h"
#include "config.h"
#include "base/suggest.h"

static const struct {
	const char *name;
	const struct ps_opts *opts;
	const char *about;
} commands[] = {
        {"mount", &ps_cmd_mount, "mount a remote dataset as local files"},
        {"umount", &ps_cmd_umount, "unmount datasets"},
        {"warm", &ps_cmd_warm, "fetch files into the cache ahead of time"},
        {"plan", &ps_cmd_plan, "announce the files that a program is going to read"},
        {"status", &ps_cmd_status, "show what mounts, cache and origin are doing"},
        {"refresh", &ps_cmd_refresh, "list the sources of a mount again"},
        {"metrics", &ps_cmd_metrics, "print the figures of all mounts of this node for Prometheus"},
        {"verify", &ps_cmd_verify, "compare every cached block with its checksum"},
        {"evict", &ps_cmd_evict, "remove files from the cache"},
        {"pin", &ps_cmd_pin, "keep files in the cache"},
        {"unpin", &ps_cmd_unpin, "allow pinned files to be evicted again"},
        {"upgrade", &ps_cmd_upgrade, "replace the daemon of a cache without unmounting"},
        {"report", NULL /* penstock-report */, "collect what a bug report needs, without secrets"},
};

static void usage(FILE *out)
{
	fputs("Usage: penstock COMMAND [ARGUMENT...]\n\n"
	      "Mounts remote sharded datasets as local files, with a cache on a local disk.\n\nCommands:\n",
	        out);
	for (size_t i = 0; i < PS_ARRAY_LEN(commands); i++)
		fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].about);
	fputs("  NAME       run the program penstock-NAME from the PATH\n\n"
	      "Options:\n  -h, --help     print this; penstock COMMAND --help describes one command\n"
	      "  -V, --version  print the version\n",
	        out);
}

static int unknown(const char *word)
{
	size_t dashes = strspn(word, "-");
	struct ps_guess guess = {.word = word + dashes, .len = strlen(word) - dashes};

	for (size_t i = 0; !dashes && i < PS_ARRAY_LEN(commands); i++)
		ps_guess_offer(&guess, commands[i].name);
	if (dashes) {
		ps_guess_offer(&guess, "help");
		ps_guess_offer(&guess, "version");
	}
	const char *what = dashes ? "option" : "command";
	if (guess.best)
		return ps_cli_fail("", PS_EXIT_USAGE, "unknown %s '%.64s'; did you mean '%s%s'?", what, word,
		        dashes ? "--" : "", guess.best);
	return ps_cli_fail("", PS_EXIT_USAGE, "unknown %s '%.64s' (%s)", what, word,
	        dashes ? "see penstock --help" : "penstock --help lists them");
}

static mode_t given_umask;

/* Runs penstock-NAME, of the PATH or beside this program, if NAME could be a program's name: not a path, not an
 * option. */
static int run_external(char **argv)
{
	ps_autostrbuf struct ps_strbuf b = {0}, beside = {0};
	ps_autofree char *self = realpath("/proc/self/exe", NULL);

	umask(given_umask);
	if (strchr(argv[0], '/') || !argv[0][0] || strlen(argv[0]) > 64)
		return unknown(argv[0]);
	ps_strbuf_addf(&b, "penstock-%s", argv[0]);
	ps_autofree char *name = ps_need(ps_strbuf_take(&b));
	char *own = argv[0];
	argv[0] = name;
	ps_process_give_back();
	execvp(name, argv);
	if (errno == ENOENT && self) {
		ps_strbuf_addf(&beside, "%.*s/%s", (int)(strrchr(self, '/') - self), self, name);
		execv(ps_strbuf_peek(&beside), argv);
	}
	if (errno == ENOENT)
		return unknown(own);
	return ps_cli_fail("", PS_EXIT_FAILED, "%s: %s", name, strerror(errno));
}

/* Runs a command with its arguments; "help COMMAND" is COMMAND --help. */
static int run(int argc, char **argv)
{
	char option[] = "--help";

	if (strcmp(argv[0], "help") == 0) {
		if (argc > 1 && argv[1][0] != '-')
			return run(2, (char *[]){argv[1], option, NULL});
		usage(stdout);
		return fflush(stdout) == 0 ? PS_EXIT_OK : PS_EXIT_FAILED;
	}
	for (size_t i = 0; i < PS_ARRAY_LEN(commands); i++)
		if (commands[i].opts && strcmp(argv[0], commands[i].name) == 0)
			return ps_cli_run(commands[i].opts, argc, argv);
	if (strcmp(argv[0], "resume") == 0)
		return ps_cmd_resume(argc, argv);
	return run_external(argv);
}

static void warn_of_limit(void)
{
	char limit[PS_SIZE_TEXT_LEN], least[PS_SIZE_TEXT_LEN];

	if (ps_process_small_as())
		ps_cli_fail("", 0,
		        "warning: the address space is limited to %s (ulimit -v); below %s threads and "
		        "memory may run out",
		        ps_size_format(ps_process_small_as(), limit),
		        ps_size_format(PS_PROCESS_AS_NBYTES, least));
}

int main(int argc, char **argv)
{
	const char *self = argc > 0 && strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1
	                   : argc > 0                        ? argv[0]
	                                                     : "";

	ps_process_begin();
	/* Also for RocksDB's files, whose modes cannot be set otherwise. */
	given_umask = umask(077);
	warn_of_limit();
	if (strcmp(self, "mount.penstock") == 0 || strcmp(self, "mount.fuse.penstock") == 0)
		return ps_cmd_mount_helper(argc, argv);
	if (argc < 2) {
		usage(stderr);
		return PS_EXIT_USAGE;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
		usage(stdout);
		return fflush(stdout) == 0 ? PS_EXIT_OK : PS_EXIT_FAILED;
	}
	if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0)
		return puts("penstock " PACKAGE_VERSION) >= 0 && fflush(stdout) == 0 ? PS_EXIT_OK
		                                                                     : PS_EXIT_FAILED;
	if (argv[1][0] == '-')
		return unknown(argv[1]);
	return run(argc - 1, argv + 1);
}
