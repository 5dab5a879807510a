/* The table of options: its ranges and defaults are those that the code uses, and the manual pages agree. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/process.h"
#include "base/strbuf.h"
#include "cli/conf_file.h"
#include "options/options.h"
#include "tests/faults.h"

#define LINES_MAX 2000

struct page {
	char *lines[LINES_MAX];
	size_t n;
};

/* Returns a line of a page as man shows it: without fonts and with escapes resolved. The arguments of .B are
 * joined with blanks, those of .BR without. */
static char *shown(const char *line)
{
	ps_autostrbuf struct ps_strbuf b = {0};
	bool macro = line[0] == '.' && line[1] == 'B', apart = macro && line[2] == ' ', quoted = false;

	if (macro)
		line += strcspn(line, " ") + 1;
	ps_strbuf_add(&b, "");
	for (; *line && *line != '\n'; line++) {
		if (*line == '"')
			quoted = !quoted;
		else if (*line == ' ' && macro && !apart && !quoted)
			continue;
		else if (strncmp(line, "\\f", 2) == 0)
			line += 2;
		else if (strncmp(line, "\\(aq", 4) == 0 || strncmp(line, "\\-", 2) == 0) {
			ps_strbuf_addc(&b, line[1] == '-' ? '-' : '\'');
			line += line[1] == '-' ? 1 : 3;
		} else
			ps_strbuf_addc(&b, *line);
	}
	return ps_strbuf_take(&b);
}

static void page_read(const char *name, struct page *ret)
{
	const char *top = getenv("top_srcdir");
	ps_autofree char *line = NULL;
	char path[4096];
	size_t room = 0;

	*ret = (struct page){0};
	snprintf(path, sizeof(path), "%s/man/%s", top ? top : ".", name);
	FILE *f = fopen(path, "r");
	assert_non_null(f);
	while (getline(&line, &room, f) > 0) {
		assert_true(ret->n < LINES_MAX);
		ret->lines[ret->n++] = shown(line);
	}
	fclose(f);
}

static void page_fini(struct page *page)
{
	for (size_t i = 0; i < page->n; i++)
		free(page->lines[i]);
}

/* Whether a paragraph has this head, alone or in a list with commas. */
static bool page_has_head(const struct page *page, const char *head)
{
	for (size_t i = 1; i < page->n; i++) {
		const char *at = strcmp(page->lines[i - 1], ".TP") == 0 ? strstr(page->lines[i], head) : NULL;

		if (at && (at == page->lines[i] || at[-1] == ' ') &&
		        (!at[strlen(head)] || at[strlen(head)] == ','))
			return true;
	}
	return false;
}

static void test_pages_have_each_option_with_its_default(void **state)
{
	static const unsigned mount = PS_CMD_MOUNT;
	struct page of_mount, of_others;

	(void)state;
	page_read("penstock-mount.1", &of_mount);
	page_read("penstock.1", &of_others);
	for (const struct ps_opt *opt = ps_options; opt->name; opt++) {
		char head[256];
		if (ps_opt_is_hidden(opt))
			continue;
		bool may_lack = opt->flags & PS_OPT_OPTIONAL;

		snprintf(head, sizeof(head), "--%s%s%s%s%s%s%s", opt->name,
		        may_lack   ? "[="
		        : opt->arg ? " "
		                   : "",
		        opt->arg ? opt->arg : "", may_lack ? "]" : "", opt->def ? " [" : "",
		        opt->def ? opt->def : "", opt->def ? "]" : "");
		if (opt->commands & mount && !page_has_head(&of_mount, head))
			fail_msg("penstock-mount.1 lacks: %s", head);
		/* warm's page refers to that of mount for what both have. */
		if (opt->commands & ~(mount | PS_CMD_WARM * (opt->commands & mount)) &&
		        !page_has_head(&of_others, head))
			fail_msg("penstock.1 lacks: %s", head);
	}
	page_fini(&of_mount);
	page_fini(&of_others);
}

static void test_the_configurations_page_has_each_key_with_its_default(void **state)
{
	static const char *const sections[] = {[PS_SCOPE_CACHE] = ".SS Options of the cache and its daemon",
	        [PS_SCOPE_DAEMON] = ".SS Options of the cache and its daemon",
	        [PS_SCOPE_SOURCE] = ".SS Options of a source",
	        [PS_SCOPE_MOUNT] = ".SS Options of a mount"};
	struct page page;
	size_t nkeys = 0, nfound = 0, nlines = 0;

	(void)state;
	page_read("penstock.conf.5", &page);
	for (const struct ps_opt *opt = ps_options; opt->name; opt++) {
		const char *section = "", *arg = opt->kind == PS_OPT_FLAG ? "yes|no" : opt->arg;
		const char *def = opt->kind == PS_OPT_FLAG ? "no" : opt->def;
		char line[256];
		bool found = false;

		if (opt->scope == PS_SCOPE_COMMAND || ps_opt_is_hidden(opt))
			continue;
		nkeys++;
		/* Quotes are for the shell. */
		ps_autostrbuf struct ps_strbuf plain = {0};
		for (const char *s = arg; *s; s++)
			if (*s != '\'')
				ps_strbuf_addc(&plain, *s);
		snprintf(line, sizeof(line), "%s = %s%s%s%s", opt->name, ps_strbuf_peek(&plain),
		        def ? "  [" : "", def ? def : "", def ? "]" : "");
		for (size_t i = 0; i < page.n; i++) {
			if (page.lines[i][0] == '.' && page.lines[i][1] == 'S')
				section = page.lines[i];
			found |= strcmp(page.lines[i], line) == 0 &&
			         strcmp(section, sections[opt->scope]) == 0;
		}
		if (!found)
			fail_msg("penstock.conf.5 lacks in '%s': %s", sections[opt->scope], line);
		nfound++;
	}
	bool on = false;
	for (size_t i = 0; i < page.n; i++) {
		if (strncmp(page.lines[i], ".SH ", 4) == 0)
			on = strcmp(page.lines[i], ".SH OPTIONS") == 0;
		nlines += on && page.lines[i][0] != '.' && strstr(page.lines[i], " = ");
	}
	assert_int_equal(nfound, nkeys);
	assert_int_equal(nlines, nkeys); /* the page has no other keys */
	page_fini(&page);
}

static void test_names_and_letters_are_unique_in_a_command(void **state)
{
	(void)state;
	for (const struct ps_opt *a = ps_options; a->name; a++) {
		for (const struct ps_opt *b = a + 1; b->name; b++) {
			assert_string_not_equal(a->name, b->name);
			assert_false(a->commands & b->commands && a->letter && a->letter == b->letter);
		}
	}
}

/* Checks the defaults in struct ps_mount_options; the cache has its own ones. */
static void test_defaults_are_the_values_without_the_option(void **state)
{
	struct ps_mount_options none, set;
	struct ps_error err = {0};

	(void)state;
	for (const struct ps_opt *opt = ps_options; opt->name; opt++) {
		bool here = opt->kind == PS_OPT_MODE || opt->kind == PS_OPT_WORD;

		if (!here || !opt->def)
			continue;
		ps_mount_options_init(&none);
		ps_mount_options_init(&set);
		if (ps_options_set(&set, opt->name, opt->def, &err) < 0)
			fail_msg("%s", err.text);
		if (memcmp((char *)&none + opt->offset, (char *)&set + opt->offset, sizeof(unsigned)) != 0)
			fail_msg("--%s: without it, it is not %s", opt->name, opt->def);
		ps_mount_options_fini(&none);
		ps_mount_options_fini(&set);
	}
}

static void test_values_outside_of_the_range_are_refused(void **state)
{
	static const struct {
		const char *name, *value, *text;
	} rows[] = {
	        {"memory", "1023K", "option memory: '1023K' is too small; the minimum is 1.0 MiB"},
	        {"memory", "0", "option memory: '0' is too small; the minimum is 1.0 MiB"},
	        {"memory", "x", "option memory: 'x' is not a size such as 512M"},
	        {"max-bandwidth", "1K", "option max-bandwidth: '1K' is too small; the minimum is 64.0 KiB"},
	        {"refresh", "999ms",
	                "option refresh: '999ms' is not a time of a second or more, such as 10m"},
	        {"cold-reads", "warm", "option cold-reads: 'warm' is none of auto, direct, cached"},
	        {"missing", "", "option missing: '' is none of fail, warn"},
	        {"missing", "fail|warn", "option missing: 'fail|warn' is none of fail, warn"},
	        {"max-connections", "65537",
	                "option max-connections: '65537' is not a whole number from 1 to 65536"},
	        {"foreground", NULL, "unknown option 'foreground'"},
	};
	struct ps_mount_options o;

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(rows); i++) {
		struct ps_error err = {0};

		ps_mount_options_init(&o);
		assert_true(ps_options_set(&o, rows[i].name, rows[i].value, &err) < 0);
		assert_string_equal(err.text, rows[i].text);
		ps_mount_options_fini(&o);
	}
	struct ps_error err = {0};
	ps_mount_options_init(&o);
	assert_int_equal(ps_options_set(&o, "max_bandwidth", "0", &err), 0);
	assert_int_equal(ps_options_set(&o, "memory", "1M", &err), 0);
	ps_mount_options_fini(&o);
}

/* What a daemon is sent by commands of 0.3, or finds in a mount of 0.3 that it takes over. */
static void test_options_of_0_3_still_work_between_processes(void **state)
{
	static const struct {
		const char *name, *value;
		size_t offset;
		const char *set;
	} rows[] = {
	        {"gs-credentials", "/a", offsetof(struct ps_mount_options, credentials), "/a"},
	        {"az-sas-file", "/b", offsetof(struct ps_mount_options, credentials), "/b"},
	        {"hf_token_file", "/c", offsetof(struct ps_mount_options, credentials), "/c"},
	        {"client-key-password-file", "/d",
	                offsetof(struct ps_mount_options, client_key_password_file), "/d"},
	        {"policy", "scan", offsetof(struct ps_mount_options, policy), "plan"},
	};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(rows); i++) {
		const struct ps_opt *opt = ps_options_find(rows[i].name);
		struct ps_mount_options o;
		struct ps_error err = {0};

		ps_mount_options_init(&o);
		assert_int_equal(ps_options_give(&o, opt, rows[i].value, &err), -EINVAL);
		assert_non_null(strstr(err.text, " no longer exists: "));
		assert_int_equal(ps_options_set(&o, rows[i].name, rows[i].value, &err), 0);
		assert_string_equal(*(char **)(void *)((char *)&o + rows[i].offset), rows[i].set);
		ps_mount_options_fini(&o);
	}
}

/* A daemon of root also mounts for other users: it must not read a file that they name in a header. */
static void test_files_of_headers_are_read_by_the_users_process_only(void **state)
{
	char path[] = "/tmp/penstock-headers-XXXXXX", value[64];
	struct ps_mount_options o;
	struct ps_error err = {0};
	int fd = mkstemp(path);

	(void)state;
	assert_int_equal(write(fd, "# x\nA: b\n\nC: d\n", 15), 15);
	close(fd);
	snprintf(value, sizeof(value), "@%s", path);
	ps_mount_options_init(&o);
	assert_int_equal(ps_options_set(&o, "header", value, &err), -EINVAL);
	assert_int_equal(ps_options_give(&o, ps_options_find("header"), value, &err), 0);
	assert_int_equal(o.nheaders, 2);
	assert_string_equal(o.headers[1], "C: d");
	assert_int_equal(o.given.n, 2);
	assert_string_equal(o.given.v[0].value, "A: b");
	ps_mount_options_fini(&o);
	unlink(path);
}

static void test_parent_folders_of_a_cache_from_the_environment_are_made(void **state)
{
	char top[] = "/tmp/penstock-options-XXXXXX", above[64], cache[80];
	struct ps_mount_options o;
	struct ps_error err = {0};
	struct stat st;

	(void)state;
	assert_non_null(mkdtemp(top));
	snprintf(above, sizeof(above), "%s/above", top);
	snprintf(cache, sizeof(cache), "%s/cache", above);
	setenv("PENSTOCK_CACHE_DIR", cache, 1);
	ps_mount_options_init(&o);
	assert_int_equal(ps_mount_options_cache_dir(&o, &err), 0);
	unsetenv("PENSTOCK_CACHE_DIR");
	assert_string_equal(o.cache_dir, cache);
	assert_int_equal(stat(above, &st), 0);
	assert_int_equal(st.st_mode, S_IFDIR | 0700);
	assert_int_equal(stat(cache, &st), -1); /* made when the cache is opened */
	ps_mount_options_fini(&o);
	assert_int_equal(rmdir(above), 0);
	assert_int_equal(rmdir(top), 0);
}

/* In a child, with the n-th allocation failing: parses and applies a configuration. Returns the exit code: 0, done;
 * 1, out of memory, said in one line on stderr; 2, another error; 3, all went well though an allocation failed. */
static int apply_without_memory(long n, char said[static 64])
{
	static const char text[] =
	        "[defaults]\ncache-dir = /c\nmax-connections = 3\n"
	        "[pets]\nmountpoint = /data/pets\nsource.train = https://127.0.0.1/train/\n"
	        "source.val = s3://bucket/val/\nval.region = here\nval.header = A: b\n"
	        "policy = lru\nlog = /l\ninclude = *.tar\nuid = 7\nallow_other = yes\n";
	int out[2], status;

	assert_int_equal(pipe(out), 0);
	pid_t pid = fork();
	if (pid == 0) {
		struct ps_conf conf = {0};
		struct ps_mount_options o;
		struct ps_mount_request request = {0};
		struct ps_conf_mount mount = {0};
		struct ps_error err = {0};

		dup2(out[1], STDERR_FILENO);
		ps_mount_options_init(&o);
		faults_fail(FAULTS_ALLOCATION, n, ENOMEM);
		int rc = ps_conf_parse("conf", 0600, text, sizeof(text) - 1, &conf, &err);
		if (rc == 0)
			rc = ps_conf_apply(&conf, ps_conf_find(&conf, "pets"), &o, &request, &mount, &err);
		if (rc < 0 && err.err == ENOMEM) /* of a part that the daemon has, too */
			ps_need(NULL);
		_exit(rc < 0 ? 2 : faults_hit(FAULTS_ALLOCATION) ? 3 : 0);
	}
	close(out[1]);
	ssize_t got = read(out[0], said, 63);
	said[got > 0 ? got : 0] = '\0';
	close(out[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void test_a_lack_of_memory_ends_a_command_with_one_line(void **state)
{
	char said[64];
	long n = 1;

	(void)state;
	for (int code; (code = apply_without_memory(n, said)) != 0; n++) {
		if (code != 1)
			fail_msg("allocation %ld: exit code %d: %s", n, code, said);
		const char *name = strchr(said, ':');
		assert_non_null(name);
		assert_string_equal(name, ": out of memory\n");
	}
	assert_true(n > 20);
}

static void test_the_report_knows_which_values_are_secret(void **state)
{
	ps_autostrbuf struct ps_strbuf want = {0}, path = {0};
	ps_autofree char *line = NULL;
	size_t room = 0, found = 0;

	(void)state;
	ps_strbuf_add(&want, "secret_options=\"");
	for (const struct ps_opt *o = ps_options; o->name; o++)
		if (o->flags & PS_OPT_SECRET)
			ps_strbuf_addf(&want, "%s%s", want.s[want.len - 1] == '"' ? "" : " ", o->name);
	ps_strbuf_add(&want, "\"\n");
	ps_strbuf_addf(&path, "%s/scripts/penstock-report", getenv("top_srcdir"));
	FILE *f = fopen(ps_strbuf_peek(&path), "r");
	assert_non_null(f);
	while (getline(&line, &room, f) > 0)
		found += strcmp(line, ps_strbuf_peek(&want)) == 0;
	fclose(f);
	assert_int_equal(found, 1);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_the_report_knows_which_values_are_secret),
	        cmocka_unit_test(test_pages_have_each_option_with_its_default),
	        cmocka_unit_test(test_the_configurations_page_has_each_key_with_its_default),
	        cmocka_unit_test(test_names_and_letters_are_unique_in_a_command),
	        cmocka_unit_test(test_defaults_are_the_values_without_the_option),
	        cmocka_unit_test(test_values_outside_of_the_range_are_refused),
	        cmocka_unit_test(test_options_of_0_3_still_work_between_processes),
	        cmocka_unit_test(test_files_of_headers_are_read_by_the_users_process_only),
	        cmocka_unit_test(test_parent_folders_of_a_cache_from_the_environment_are_made),
	        cmocka_unit_test(test_a_lack_of_memory_ends_a_command_with_one_line),
	};

	return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
