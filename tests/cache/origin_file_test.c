/* The file origin: listing, versions, reads; and local manifests. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/strbuf.h"
#include "origin/origin.h"

static char dir[] = "/tmp/penstock-file-XXXXXX";

static void put(const char *name, const char *text)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	FILE *f = fopen(path, "we");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static struct ps_origin *open_below(const char *prefix, const char *name)
{
	char source[256];
	struct ps_origin *o = NULL;
	struct ps_error err = {0};

	snprintf(source, sizeof(source), "%s%s/%s", prefix, dir, name);
	if (ps_origin_open(source, NULL, &o, &err) < 0)
		fail_msg("%s: %s", source, err.text);
	return o;
}

static int collect(void *arg, const struct ps_listed *listed)
{
	ps_strbuf_addf(arg, "%s=%d ", listed->path, (int)listed->remote.size);
	return 0;
}

struct call {
	struct ps_origin_get get;
	struct ps_origin_head head;
	struct ps_error err;
	sem_t done;
	char bytes[4096];
	struct iovec iov;
	char url[256];
};

static void on_head(struct ps_origin_head *head, const struct ps_error *err)
{
	struct call *c = (struct call *)((char *)head - offsetof(struct call, head));

	c->err = *err;
	sem_post(&c->done);
}

static void on_get(struct ps_origin_get *get, const struct ps_error *err)
{
	struct call *c = (struct call *)((char *)get - offsetof(struct call, get));

	c->err = *err;
	sem_post(&c->done);
}

static void ask_head(struct ps_origin *o, struct call *c, const char *name)
{
	memset(c, 0, sizeof(*c));
	sem_init(&c->done, 0, 0);
	snprintf(c->url, sizeof(c->url), "file://%s/%s", dir, name);
	c->head.url = c->url;
	c->head.done = on_head;
	o->ops->head(o, &c->head);
	sem_wait(&c->done);
}

static void fetch(struct ps_origin *o, struct call *c, uint64_t offset, size_t n)
{
	c->iov = (struct iovec){c->bytes, n};
	c->get = (struct ps_origin_get){.url = c->url,
	        .expect = c->head.seen,
	        .offset = offset,
	        .nbytes = n,
	        .iov = &c->iov,
	        .niov = 1,
	        .done = on_get};
	o->ops->get(o, &c->get);
	sem_wait(&c->done);
}

static void tree_is_listed(void **state)
{
	struct ps_origin *o = open_below("", "sub");
	ps_autostrbuf struct ps_strbuf b = {0};
	struct ps_error err = {0};

	(void)state;
	assert_int_equal(o->ops->list(o, collect, &b, NULL, &err), 0);
	assert_string_equal(b.s, "b c.tar=6 loop/a.tar=5 loop/link.tar=5 ");
	o->ops->close(o);
	o = open_below("", "");
	ps_strbuf_reset(&b);
	assert_int_equal(o->ops->list(o, collect, &b, NULL, &err), 0);
	assert_non_null(strstr(b.s, "a.tar=5 "));
	assert_non_null(strstr(b.s, "sub/b c.tar=6 "));
	assert_non_null(strstr(b.s, "link.tar=5 "));
	assert_null(strstr(b.s, "loop"));
	assert_null(strstr(b.s, "dangling"));
	assert_null(strstr(b.s, "fifo"));
	o->ops->close(o);
}

static void range_is_read(void **state)
{
	struct ps_origin *o = open_below("file://", "sub/b%20c.tar");
	struct call c;

	(void)state;
	ask_head(o, &c, "sub/b%20c.tar");
	assert_int_equal(c.err.err, 0);
	assert_int_equal(c.head.seen.size, 6);
	fetch(o, &c, 2, 3);
	assert_int_equal(c.err.err, 0);
	assert_memory_equal(c.bytes, "cde", 3);
	assert_int_equal(c.get.nbytes_done, 3);
	o->ops->close(o);
}

static void changed_file_is_stale(void **state)
{
	struct ps_origin *o = open_below("", "");
	struct call c;
	char path[256];

	(void)state;
	put("v.tar", "old version");
	ask_head(o, &c, "v.tar");
	snprintf(path, sizeof(path), "%s/v.tar", dir);
	assert_int_equal(unlink(path), 0);
	put("v.tar", "new version");
	fetch(o, &c, 0, 5);
	assert_int_equal(c.err.err, ESTALE);
	assert_int_equal(c.get.nbytes_done, 0);
	assert_int_equal(unlink(path), 0);
	fetch(o, &c, 0, 5);
	assert_int_equal(c.err.err, ENOENT);
	o->ops->close(o);
}

static void only_regular_files_are_found(void **state)
{
	static const char *const names[] = {"sub", "fifo", "no-such", "a.tar/x", "%00", "%zz"};
	struct ps_origin *o = open_below("", "");
	struct call c;

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(names); i++) {
		ask_head(o, &c, names[i]);
		assert_int_equal(c.err.err, i < 4 ? ENOENT : EIO);
	}
	o->ops->close(o);
}

static void braces_name_files(void **state)
{
	struct ps_origin *o = open_below("", "{a,sub/b c}.tar");
	ps_autostrbuf struct ps_strbuf b = {0};

	(void)state;
	assert_int_equal(o->ops->list(o, collect, &b, NULL, NULL), 0);
	assert_string_equal(b.s, "a.tar=-1 sub/b c.tar=-1 ");
	o->ops->close(o);
}

static void local_list_names_files(void **state)
{
	struct ps_origin *o;
	ps_autostrbuf struct ps_strbuf b = {0};
	struct ps_error err = {0};

	(void)state;
	put("list.txt", "a.tar 5\nsub/b%20c.tar 6\nsub/b%20c.tar/x\na.tar\n");
	o = open_below("@", "list.txt");
	assert_string_equal(o->ops->name, "file");
	assert_int_equal(o->ops->list(o, collect, &b, NULL, &err), 0);
	assert_string_equal(b.s, "a.tar=5 sub/b c.tar=6 ");
	o->ops->close(o);
}

static void local_list_names_urls(void **state)
{
	struct ps_origin *o;
	ps_autostrbuf struct ps_strbuf b = {0};
	struct ps_error err = {0};

	(void)state;
	put("urls.txt", "https://one/d/a.tar?sig=x\nhttps://two/d/a.tar 7\n");
	o = open_below("@", "urls.txt");
	assert_string_equal(o->ops->name, "http");
	assert_int_equal(o->ops->list(o, collect, &b, NULL, &err), 0);
	assert_string_equal(b.s, "one/d/a.tar=-1 two/d/a.tar=7 ");
	o->ops->close(o);
}

static void bad_lists_are_refused(void **state)
{
	static const char *const texts[] = {"", "# nothing\n", "a b c\n"};
	struct ps_origin *o;
	struct ps_error err = {0};
	char source[256];

	(void)state;
	snprintf(source, sizeof(source), "@%s/bad.txt", dir);
	for (size_t i = 0; i < PS_ARRAY_LEN(texts); i++) {
		put("bad.txt", texts[i]);
		assert_int_equal(ps_origin_open(source, NULL, &o, &err), -EINVAL);
		assert_non_null(strstr(err.text, "bad.txt"));
	}
	put("bad.txt", "a.tar\nhttps://h/x\n");
	o = open_below("@", "bad.txt");
	ps_autostrbuf struct ps_strbuf b = {0};
	assert_int_equal(o->ops->list(o, collect, &b, NULL, &err), -EINVAL);
	o->ops->close(o);
}

static void missing_directory_is_an_error(void **state)
{
	struct ps_origin *o = open_below("", "no-such/");
	ps_autostrbuf struct ps_strbuf b = {0};
	struct ps_error err = {0};

	(void)state;
	assert_int_equal(o->ops->list(o, collect, &b, NULL, &err), -ENOENT);
	assert_non_null(strstr(err.text, "no-such"));
	o->ops->close(o);
}

static void abort_and_close_end_all_gets(void **state)
{
	enum { N = 200 };
	struct ps_origin *o = open_below("", "");
	struct call first, *calls = calloc(N, sizeof(*calls));

	(void)state;
	ask_head(o, &first, "a.tar");
	for (int i = 0; i < N; i++) {
		calls[i] = first;
		sem_init(&calls[i].done, 0, 0);
		calls[i].iov = (struct iovec){calls[i].bytes, 5};
		calls[i].get = (struct ps_origin_get){.url = calls[i].url,
		        .expect = first.head.seen,
		        .nbytes = 5,
		        .iov = &calls[i].iov,
		        .niov = 1,
		        .done = on_get};
		o->ops->get(o, &calls[i].get);
		if (i % 3 == 0)
			o->ops->cancel(o, &calls[i].get);
	}
	o->ops->abort(o);
	o->ops->close(o);
	for (int i = 0; i < N; i++) {
		assert_int_equal(sem_trywait(&calls[i].done), 0);
		assert_true(calls[i].err.err == 0 || calls[i].err.err == ECANCELED);
	}
	free(calls);
}

static int set_up(void **state)
{
	char path[256];

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/sub", dir);
	mkdir(path, 0755);
	put("a.tar", "12345");
	put("sub/b c.tar", "abcdef");
	snprintf(path, sizeof(path), "%s/link.tar", dir);
	assert_int_equal(symlink("a.tar", path), 0);
	snprintf(path, sizeof(path), "%s/dangling", dir);
	assert_int_equal(symlink("nowhere", path), 0);
	snprintf(path, sizeof(path), "%s/sub/loop", dir);
	assert_int_equal(symlink("..", path), 0);
	snprintf(path, sizeof(path), "%s/fifo", dir);
	assert_int_equal(mkfifo(path, 0600), 0);
	return 0;
}

static int tear_down(void **state)
{
	char command[64];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(tree_is_listed),
	        cmocka_unit_test(range_is_read),
	        cmocka_unit_test(changed_file_is_stale),
	        cmocka_unit_test(only_regular_files_are_found),
	        cmocka_unit_test(braces_name_files),
	        cmocka_unit_test(local_list_names_files),
	        cmocka_unit_test(local_list_names_urls),
	        cmocka_unit_test(bad_lists_are_refused),
	        cmocka_unit_test(missing_directory_is_an_error),
	        cmocka_unit_test(abort_and_close_end_all_gets),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
