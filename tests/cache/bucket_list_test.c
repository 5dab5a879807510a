/* Listing a bucket in parts: every key comes once, whatever the keys are. A store that does not keep the
 * order of keys is listed in one chain: each page is requested after the one before it. The store is a
 * thread of this program. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "base/strbuf.h"
#include "base/url.h"
#include "listing/listing.h"
#include "origin/origin.h"

/* Random numbers ----------------------------------------------------------------------------------------- */

static uint64_t random_state = 7;

static unsigned pick(unsigned below)
{
	random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (unsigned)(random_state >> 33) % below;
}

/* Sets of texts ------------------------------------------------------------------------------------------ */

struct texts {
	char **v;
	size_t n, cap;
};

static void add(struct texts *t, const char *text)
{
	if (t->n == t->cap) {
		t->cap = t->cap ? t->cap * 2 : 64;
		t->v = realloc(t->v, t->cap * sizeof(*t->v));
		assert_non_null(t->v);
	}
	t->v[t->n++] = strdup(text);
}

static int compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void sort(struct texts *t)
{
	qsort(t->v, t->n, sizeof(*t->v), compare);
}

static void sort_unique(struct texts *t)
{
	size_t n = 0;

	sort(t);
	for (size_t i = 0; i < t->n; i++)
		if (n == 0 || strcmp(t->v[n - 1], t->v[i]) != 0)
			t->v[n++] = t->v[i];
		else
			free(t->v[i]);
	t->n = n;
}

static void fini(struct texts *t)
{
	for (size_t i = 0; i < t->n; i++)
		free(t->v[i]);
	free(t->v);
	*t = (struct texts){0};
}

/* The store ---------------------------------------------------------------------------------------------- */

static struct {
	int listener, port;
	struct texts keys; /* in the order in which they are listed */
	size_t page;
	unsigned delay_us;
	bool ignores_start; /* a start-after has no effect */
	bool folds;         /* keys are in an order that ignores case */
	int start_status;   /* the answer to a start-after; 0: a page; 200: one without keys */
	unsigned fails;     /* each Nth request has 503 as its answer; 0: none */
	_Atomic unsigned nrequests, nstarts, nopen, nopen_max;
} store;

static void parameter(const char *query, const char *name, char *ret, size_t cap)
{
	size_t n = strlen(name), to = 0;
	const char *s = query;

	ret[0] = '\0';
	while (strncmp(s, name, n) != 0 || s[n] != '=')
		if (!(s = strchr(s, '&')) || !*++s)
			return;
	for (s += n + 1; *s && *s != '&' && *s != ' ' && to + 1 < cap; s++) {
		unsigned c = (unsigned char)*s;

		if (*s == '%' && sscanf(s + 1, "%2x", &c) == 1)
			s += 2;
		ret[to++] = (char)c;
	}
	ret[to] = '\0';
}

/* Appends the page that a query asks for. */
static void write_page(const char *query, struct ps_strbuf *b)
{
	char prefix[4096], start[4096], token[64];
	size_t i = 0, n = 0;

	parameter(query, "prefix", prefix, sizeof(prefix));
	parameter(query, "start-after", start, sizeof(start));
	parameter(query, "continuation-token", token, sizeof(token));
	if (token[0])
		i = strtoull(token, NULL, 10);
	else if (!store.ignores_start)
		while (i < store.keys.n && (store.folds ? strcasecmp : strcmp)(store.keys.v[i], start) <= 0)
			i++;
	ps_strbuf_add(b, "<ListBucketResult>");
	for (; i < store.keys.n && n < store.page; i++) {
		if (strncmp(store.keys.v[i], prefix, strlen(prefix)) != 0)
			continue;
		ps_strbuf_add(b, "<Contents><Key>");
		for (const char *s = store.keys.v[i]; *s; s++)
			ps_strbuf_addf(b, "%%%02X", (unsigned char)*s);
		ps_strbuf_add(b, "</Key><ETag>\"e\"</ETag><Size>5</Size></Contents>");
		n++;
	}
	while (i < store.keys.n && strncmp(store.keys.v[i], prefix, strlen(prefix)) != 0)
		i++;
	ps_strbuf_addf(b, "<EncodingType>url</EncodingType><IsTruncated>%s</IsTruncated>",
	        i < store.keys.n ? "true" : "false");
	if (i < store.keys.n)
		ps_strbuf_addf(b, "<NextContinuationToken>%zu</NextContinuationToken>", i);
	ps_strbuf_add(b, "</ListBucketResult>");
}

static bool answer(int fd, char *request)
{
	ps_autostrbuf struct ps_strbuf body = {0}, whole = {0};
	unsigned number = ++store.nrequests, nopen = ++store.nopen, max = store.nopen_max;
	bool starts = strstr(request, "start-after=");
	int status = store.fails && number % store.fails == 0 ? 503
	             : starts && store.start_status           ? store.start_status
	                                                      : 200;

	while (nopen > max && !atomic_compare_exchange_weak(&store.nopen_max, &max, nopen))
		;
	store.nstarts += starts;
	nanosleep(&(struct timespec){.tv_nsec = (long)(store.delay_us + number % 7 * 100) * 1000}, NULL);
	*strpbrk(request, "\r\n") = '\0';
	if (starts && store.start_status == 200)
		ps_strbuf_add(&body, "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>");
	else if (status == 200)
		write_page(strchr(request, '?') + 1, &body);
	ps_strbuf_addf(&whole,
	        "HTTP/1.1 %d X\r\nContent-Type: application/xml\r\nContent-Length: %zu\r\n\r\n", status,
	        body.len);
	ps_strbuf_addn(&whole, ps_strbuf_peek(&body), body.len);
	store.nopen--;
	for (size_t sent = 0; sent < whole.len;) {
		ssize_t n = send(fd, whole.s + sent, whole.len - sent, MSG_NOSIGNAL);

		if (n <= 0)
			return false;
		sent += (size_t)n;
	}
	return true;
}

static void *serve_one(void *arg)
{
	int fd = (int)(intptr_t)arg;
	char request[32768];
	size_t n = 0;
	ssize_t got;

	while ((got = recv(fd, request + n, sizeof(request) - 1 - n, 0)) > 0) {
		n += (size_t)got;
		request[n] = '\0';
		if (!strstr(request, "\r\n\r\n"))
			continue;
		n = 0;
		if (!answer(fd, request))
			break;
	}
	close(fd);
	return NULL;
}

static void *serve(void *arg)
{
	(void)arg;
	for (int fd; (fd = accept(store.listener, NULL, NULL)) >= 0;) {
		pthread_t thread;

		assert_int_equal(pthread_create(&thread, NULL, serve_one, (void *)(intptr_t)fd), 0);
		pthread_detach(thread);
	}
	return NULL;
}

static int start_store(void **state)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(at);
	pthread_t thread;

	(void)state;
	store.listener = socket(AF_INET, SOCK_STREAM, 0);
	if (store.listener < 0 || bind(store.listener, (struct sockaddr *)&at, sizeof(at)) < 0 ||
	        listen(store.listener, 64) < 0 ||
	        getsockname(store.listener, (struct sockaddr *)&at, &len) < 0)
		return -1;
	store.port = ntohs(at.sin_port);
	if (pthread_create(&thread, NULL, serve, NULL) != 0)
		return -1;
	pthread_detach(thread);
	return 0;
}

/* The listing -------------------------------------------------------------------------------------------- */

static struct texts added; /* what the listing added before it began again */

int __real_ps_names_add(struct ps_names *names, const struct ps_listed *listed);
int __wrap_ps_names_add(struct ps_names *names, const struct ps_listed *listed);
int __wrap_ps_names_add(struct ps_names *names, const struct ps_listed *listed)
{
	if (!names->again)
		add(&added, listed->url);
	return __real_ps_names_add(names, listed);
}

static int collect(void *arg, const struct ps_listed *listed)
{
	add(arg, listed->path);
	return 0;
}

static int list(const char *source, struct texts *ret)
{
	char endpoint[64];
	const struct ps_origin_options options = {
	        .endpoint = endpoint, .region = "r", .no_sign_request = true};
	struct ps_origin *o;
	struct ps_error err = {0};

	store.nrequests = store.nstarts = store.nopen_max = 0;
	snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%d", store.port);
	if (ps_origin_open(source, &options, &o, &err) < 0)
		fail_msg("%s: %s", source, err.text);
	int rc = o->ops->list(o, collect, ret, NULL, &err);
	o->ops->close(o);
	return rc;
}

static bool has(const struct texts *sorted, const char *text, size_t n)
{
	char *copy = strndup(text, n);
	bool found = bsearch(&copy, sorted->v, sorted->n, sizeof(*sorted->v), compare);

	free(copy);
	return found;
}

/* The names that the keys of this prefix must have: as ps_s3_path() has them, and "%00" after a folder that
 * is named like a key. Names that cannot be shown are left out. */
static void expect(const struct texts *sorted_keys, const char *prefix, struct texts *ret)
{
	struct texts shown = {0};
	size_t nprefix = strlen(prefix);

	for (size_t i = 0; i < sorted_keys->n; i++) {
		ps_autostrbuf struct ps_strbuf b = {0};

		if (strncmp(sorted_keys->v[i], prefix, nprefix) != 0)
			continue;
		ps_s3_path(sorted_keys->v[i] + nprefix, &b);
		if (ps_path_check(ps_strbuf_peek(&b)) == 0)
			add(&shown, ps_strbuf_peek(&b));
	}
	sort(&shown);
	for (size_t i = 0; i < shown.n; i++) {
		ps_autostrbuf struct ps_strbuf b = {0};

		for (const char *s = shown.v[i]; *s; s++) {
			if (*s == '/' && has(&shown, shown.v[i], (size_t)(s - shown.v[i])))
				ps_strbuf_add(&b, "%00");
			ps_strbuf_addc(&b, *s);
		}
		add(ret, ps_strbuf_peek(&b));
	}
	fini(&shown);
	sort(ret);
}

static void same(const struct texts *found, const struct texts *expected)
{
	for (size_t i = 0; i < found->n && i < expected->n; i++)
		if (strcmp(found->v[i], expected->v[i]) != 0)
			fail_msg("name %zu: \"%s\", not \"%s\"", i, found->v[i], expected->v[i]);
	assert_int_equal(found->n, expected->n);
}

/* Lists the prefix, and checks that each name of the store's keys comes once. */
static void lists_all(const char *prefix)
{
	ps_autostrbuf struct ps_strbuf source = {0};
	struct texts found = {0}, expected = {0}, sorted = {0};

	for (size_t i = 0; i < store.keys.n; i++)
		add(&sorted, store.keys.v[i]);
	sort(&sorted);
	expect(&sorted, prefix, &expected);
	ps_strbuf_addf(&source, "s3://bucket/%s", prefix);
	assert_int_equal(list(source.s, &found), 0);
	sort(&found);
	same(&found, &expected);
	fini(&found);
	fini(&expected);
	fini(&sorted);
	sort(&added);
	for (size_t i = 1; i < added.n; i++)
		if (strcmp(added.v[i - 1], added.v[i]) == 0)
			fail_msg("\"%s\" was listed twice", added.v[i]);
	fini(&added);
}

static void use(struct texts *keys, size_t page)
{
	fini(&store.keys);
	store.keys = *keys;
	*keys = (struct texts){0};
	store.page = page;
	store.delay_us = 3000;
	store.ignores_start = store.folds = false;
	store.start_status = 0;
	store.fails = 0;
}

/* Adds n keys, each of the prefix, a number of `ndigits` digits, and the suffix. */
static void add_numbers(
        struct texts *keys, const char *prefix, unsigned ndigits, const char *suffix, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		ps_autostrbuf struct ps_strbuf b = {0};

		ps_strbuf_addf(&b, "%s%0*u%s", prefix, (int)ndigits, i * 7, suffix);
		add(keys, b.s);
	}
}

/* Adds n random keys of at most len of these characters (UTF-8). */
static void add_random(struct texts *keys, const char *prefix, const char *const *characters, unsigned nchars,
        unsigned len, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		ps_autostrbuf struct ps_strbuf b = {0};

		ps_strbuf_add(&b, prefix);
		for (unsigned j = 1 + pick(len); j > 0; j--)
			ps_strbuf_add(&b, characters[pick(nchars)]);
		add(keys, b.s);
	}
}

/* Tests -------------------------------------------------------------------------------------------------- */

static void few_keys_are_listed_without_guesses(void **state)
{
	static const unsigned counts[] = {1, 9, 10, 11, 20};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(counts); i++) {
		struct texts keys = {0};

		add_numbers(&keys, "a/", 5, "", counts[i]);
		use(&keys, 10);
		lists_all("");
		assert_int_equal(store.nstarts, 0);
		assert_int_equal(store.nrequests, (counts[i] + 9) / 10);
	}
}

static void many_keys_are_listed_in_parts(void **state)
{
	struct texts keys = {0};

	(void)state;
	add_numbers(&keys, "some/long/prefix/of/a/folder/shard-", 12, ".tar", 3000);
	use(&keys, 20);
	lists_all("some/");
	assert_true(store.nopen_max >= 4);
	/* Pages that end in another part, and parts that begin after the last key, cost at most as many
	 * requests as the listing itself. */
	assert_in_range(store.nrequests, 150, 300);
}

static void keys_of_every_kind_come_once(void **state)
{
	static const char *const bytes[] = {"\x01", " ", "/", "0", "~", "\x80", "\xc3", "\xff"},
	                         *const hex[] = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "a", "b",
	                                 "c", "d", "e", "f", "/"},
	                         *const clashes[] = {"a", "-", "/", "0"},
	                         *const dels[] = {"a", "-", "/", "\x7f"},
	                         *const cjk[] = {"\u4e00", "\u5927", "\u9f98", "\uac00", "\ud7a3",
	                                 "\U0001f600", "/", "\u00e4"};
	static const struct {
		const char *const *characters;
		unsigned nchars, len, n;
	} rows[] = {{bytes, PS_ARRAY_LEN(bytes), 8, 3000}, {hex, PS_ARRAY_LEN(hex), 20, 3000},
	        {clashes, PS_ARRAY_LEN(clashes), 7, 3000}, {dels, PS_ARRAY_LEN(dels), 7, 2000},
	        {cjk, PS_ARRAY_LEN(cjk), 6, 3000}};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(rows); i++) {
		struct texts keys = {0};

		add_random(&keys, "p/", rows[i].characters, rows[i].nchars, rows[i].len, rows[i].n);
		add(&keys, "o");
		add(&keys, "q/x");
		sort_unique(&keys);
		use(&keys, 10);
		lists_all("p/");
		if (rows[i].characters != dels)
			assert_true(store.nopen_max >= 2);
	}
}

static void keys_with_a_long_prefix_are_listed_in_parts(void **state)
{
	struct texts keys = {0};
	char prefix[902];

	(void)state;
	memset(prefix, 'x', sizeof(prefix));
	for (size_t i = 50; i < sizeof(prefix); i += 100)
		prefix[i] = '/';
	strcpy(prefix + 900, "/");
	add_numbers(&keys, prefix, 6, "", 2000);
	use(&keys, 10);
	lists_all("");
	assert_true(store.nopen_max >= 4);
}

static void one_large_folder_among_small_ones_is_listed_in_parts(void **state)
{
	struct texts keys = {0};

	(void)state;
	for (char c = 'a'; c <= 'z'; c++) {
		char prefix[32];

		snprintf(prefix, sizeof(prefix), "%c/few/", c);
		add_numbers(&keys, prefix, 3, "", 5);
	}
	add_numbers(&keys, "m/many/files/", 8, "", 3000);
	sort(&keys);
	use(&keys, 10);
	lists_all("");
	assert_true(store.nopen_max >= 4);
}

static void a_store_without_start_after_is_listed_in_one_chain(void **state)
{
	static const int statuses[] = {0, 200, 400, 501};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(statuses); i++) {
		struct texts keys = {0};

		add_numbers(&keys, "a/", 5, "", 300);
		use(&keys, 10);
		store.start_status = statuses[i];
		store.ignores_start = true;
		lists_all("a/");
		assert_true(store.nstarts > 0);
	}
}

static void a_store_with_another_order_is_listed_in_one_chain(void **state)
{
	struct texts keys = {0};

	(void)state;
	add_numbers(&keys, "a/", 5, "", 1000);
	use(&keys, 10);
	/* The first half is in order, so the listing has several parts when it notices the disorder. */
	for (size_t i = store.keys.n - 1; i > 500; i--) {
		size_t j = 500 + pick((unsigned)(i - 499));
		char *other = store.keys.v[i];

		store.keys.v[i] = store.keys.v[j];
		store.keys.v[j] = other;
	}
	lists_all("a/");
}

static int compare_folded(const void *a, const void *b)
{
	return strcasecmp(*(char *const *)a, *(char *const *)b);
}

/* A part may see its keys in the order of bytes: then only a border between parts shows the disorder. */
static void a_store_that_folds_cases_is_listed_in_one_chain(void **state)
{
	static const char *const names[] = {
	        "Apple", "banana", "Cherry", "date", "Lime", "mango", "Nut", "olive", "Zebra"};

	(void)state;
	for (size_t page = 1; page <= 20; page++) {
		struct texts keys = {0};

		for (size_t i = 0; i < PS_ARRAY_LEN(names); i++)
			add_numbers(&keys, names[i], 4, "", 20);
		use(&keys, page);
		qsort(store.keys.v, store.keys.n, sizeof(*store.keys.v), compare_folded);
		store.folds = true;
		lists_all("");
	}
}

static void pages_that_fail_are_requested_again(void **state)
{
	struct texts keys = {0};

	(void)state;
	add_numbers(&keys, "a/", 5, "", 500);
	use(&keys, 10);
	store.fails = 17;
	lists_all("a/");
	assert_true(store.nstarts > 0);
}

static void a_prefix_without_keys_is_not_found(void **state)
{
	struct texts keys = {0}, found = {0};

	(void)state;
	add_numbers(&keys, "a/", 5, "", 100);
	use(&keys, 10);
	assert_int_equal(list("s3://bucket/c/", &found), -ENOENT);
	assert_int_equal(found.n, 0);
	fini(&found);
	fini(&added);
}

static void texts_are_between_two_keys(void **state)
{
	static const struct {
		const char *at, *end;
		size_t nprefix, ncommon;
		const char *text; /* NULL: there is none */
	} rows[] = {
	        {"0000", NULL, 0, 0, "4\x7f"},    /* half of the digits seen */
	        {"0000", "4\x7f", 0, 0, "1\x7f"}, /* half of what is left */
	        {"0000", "1", 0, 0,
	                "0"
	                "4\x7f"},                  /* no room: the next character */
	        {"9", NULL, 0, 0, "9\x7f"},        /* none seen after it: are there others? */
	        {"p/0", NULL, 2, 2, "p/4\x7f"},    /* within the prefix */
	        {"aaaa00", NULL, 0, 4, "aaa\x7f"}, /* the middle of what may vary */
	        {"0\x7f", "0\x7f\x01", 0, 0, NULL},
	        {"\u4e00", NULL, 0, 0, "\u4e00\x7f"}, /* a whole character */
	};
	struct ps_split_alphabet digits = {0};

	(void)state;
	ps_split_note(&digits, "0123456789");
	for (size_t i = 0; i < PS_ARRAY_LEN(rows); i++) {
		ps_autostrbuf struct ps_strbuf b = {0};
		bool found = ps_split_between(
		        &digits, rows[i].at, rows[i].end, rows[i].nprefix, rows[i].ncommon, &b);

		assert_int_equal(found, rows[i].text != NULL);
		if (found)
			assert_string_equal(b.s, rows[i].text);
	}
}

static void texts_are_between_any_two_keys(void **state)
{
	static const char *const all[] = {"\x01", " ", "/", "0", "9", "a", "~", "\x7f", "\x80", "\xc3",
	        "\xe4\xb8\x80", "\xed\x9f\xbf", "\xf4\x8f\xbf\xbf", "\xff"};
	struct ps_split_alphabet alphabet = {0};
	struct texts keys = {0};
	unsigned nfound = 0;

	(void)state;
	add_random(&keys, "", all, PS_ARRAY_LEN(all), 6, 600);
	sort_unique(&keys);
	for (size_t i = 0; i < keys.n; i++)
		ps_split_note(&alphabet, keys.v[i]);
	for (unsigned i = 0; i < 20000; i++) {
		unsigned a = pick((unsigned)keys.n), b = pick((unsigned)keys.n);
		ps_autostrbuf struct ps_strbuf text = {0};

		if (a >= b || !ps_split_between(&alphabet, keys.v[a], keys.v[b], 0, pick(7), &text))
			continue;
		nfound++;
		assert_true(strcmp(keys.v[a], text.s) < 0 && strcmp(text.s, keys.v[b]) < 0);
		assert_int_equal(text.s[text.len - 1], 0x7f);
	}
	assert_true(nfound > 5000);
	fini(&keys);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(texts_are_between_two_keys),
	        cmocka_unit_test(texts_are_between_any_two_keys),
	        cmocka_unit_test(few_keys_are_listed_without_guesses),
	        cmocka_unit_test(many_keys_are_listed_in_parts),
	        cmocka_unit_test(keys_of_every_kind_come_once),
	        cmocka_unit_test(keys_with_a_long_prefix_are_listed_in_parts),
	        cmocka_unit_test(one_large_folder_among_small_ones_is_listed_in_parts),
	        cmocka_unit_test(a_store_without_start_after_is_listed_in_one_chain),
	        cmocka_unit_test(a_store_with_another_order_is_listed_in_one_chain),
	        cmocka_unit_test(a_store_that_folds_cases_is_listed_in_one_chain),
	        cmocka_unit_test(pages_that_fail_are_requested_again),
	        cmocka_unit_test(a_prefix_without_keys_is_not_found),
	};

	return cmocka_run_group_tests_name("bucket_list", tests, start_store, NULL);
}
