/* What a walk over a tar reports about its members: kinds, links, times, and names that are too long. For
 * names and bytes see tar_test.py. */
#include "config.h"

#include <errno.h>

#include "make_tar.h"
#include "stream_memory.h"
#include "tar_memory.h"

/* How an archive is walked. */
enum { STRICT, DROPS, STREAM, WALKS };

struct walk {
	struct tar_memory memory;
	struct ps_stream *stream;
	struct ps_tar *tar;
	struct ps_tar_member m;
	struct ps_error err;
};

static void walk_begin(struct walk *w, const struct tar *t, int how)
{
	*w = (struct walk){.memory = {.p = t->data, .n = t->len}};
	if (how == STREAM) {
		w->stream = stream_of_memory(t->data, t->len);
		assert_non_null(w->stream);
		w->tar = ps_stream_tar(w->stream);
	} else {
		w->tar = ps_tar_new(&tar_memory_source, &w->memory, how == DROPS);
	}
	assert_non_null(w->tar);
}

static void walk_end(struct walk *w)
{
	ps_tar_free(w->tar);
	ps_stream_free(w->stream);
}

static const struct ps_tar_member *member_next(struct walk *w)
{
	if (ps_tar_next(w->tar, &w->m, &w->err) != 1)
		fail_msg("no member: %s", w->err.text);
	assert_int_equal(strlen(w->m.name), w->m.name_len);
	assert_int_equal(strlen(w->m.link), w->m.link_len);
	return &w->m;
}

static void ends_here(struct walk *w)
{
	assert_int_equal(ps_tar_next(w->tar, &w->m, &w->err), 0);
	walk_end(w);
}

static void fails_here(struct walk *w, const char *text)
{
	struct ps_error again;

	assert_int_equal(ps_tar_next(w->tar, &w->m, &w->err), -EBADMSG);
	assert_string_equal(w->err.text, text);
	assert_int_equal(ps_tar_next(w->tar, &w->m, &again), -EBADMSG);
	assert_string_equal(again.text, text);
	walk_end(w);
}

/* Archives ----------------------------------------------------------------------------------------------- */

struct header {
	char type;
	const char *name, *link;
	const char *size;  /* the field; NULL: 0 */
	const char *mtime; /* the field, 12 bytes; NULL: empty */
};

static void header_put(struct tar *t, struct header of)
{
	char h[512] = {0};
	unsigned sum = 0;

	memcpy(h, of.name, strnlen(of.name, 100));
	memcpy(h + 124, of.size ? of.size : "00000000000", 12);
	if (of.mtime)
		memcpy(h + 136, of.mtime, 12);
	memset(h + 148, ' ', 8);
	h[156] = of.type;
	if (of.link)
		memcpy(h + 157, of.link, strnlen(of.link, 100));
	if (of.type)
		memcpy(h + 257, "ustar\00000", 8);
	for (int i = 0; i < 512; i++)
		sum += (unsigned char)h[i];
	snprintf(h + 148, 7, "%06o", sum & 0777777);
	tar_put(t, h, sizeof(h));
}

/* A member of a type that describes the next member. */
static void extra_put(struct tar *t, char type, const void *data, size_t n)
{
	char size[13];

	snprintf(size, sizeof(size), "%011zo", n);
	header_put(t, (struct header){.type = type, .name = "extra", .size = size});
	tar_put(t, data, n);
}

/* A pax header of one record. */
static void pax_put_bytes(struct tar *t, char type, const char *key, const char *value, size_t n)
{
	size_t room = strlen(key) + n + 32, len = strlen(key) + n + 3, digits = 1;
	char *record = malloc(room);

	assert_non_null(record);
	for (size_t of = 10; len + digits >= of; of *= 10)
		digits++;
	len += digits;
	memcpy(record + snprintf(record, room, "%zu %s=", len, key), value, n);
	record[len - 1] = '\n';
	extra_put(t, type, record, len);
	free(record);
}

static void pax_put(struct tar *t, char type, const char *key, const char *value)
{
	pax_put_bytes(t, type, key, value, strlen(value));
}

/* A GNU long name (L) or link (K). */
static void long_put(struct tar *t, char type, const char *text)
{
	extra_put(t, type, text, strlen(text) + 1);
}

/* n letters; the caller's to free. */
static char *letters(char letter, size_t n)
{
	char *text = malloc(n + 1);

	assert_non_null(text);
	memset(text, letter, n);
	text[n] = 0;
	return text;
}

/* Kinds -------------------------------------------------------------------------------------------------- */

static void each_type_is_a_kind(void **state)
{
	static const struct {
		char type;
		const char *name;
		enum ps_tar_kind kind;
		bool has_data;
	} types[] = {
	        {'0', "a", PS_TAR_FILE, true},
	        {0, "a", PS_TAR_FILE, true},
	        {'7', "a", PS_TAR_FILE, true},
	        {'0', "a/", PS_TAR_FILE, true}, /* only v7 lacks a type for folders */
	        {0, "a/", PS_TAR_FOLDER, false},
	        {'5', "a", PS_TAR_FOLDER, false},
	        {'5', "a/", PS_TAR_FOLDER, false},
	        {'1', "a", PS_TAR_HARDLINK, false},
	        {'2', "a", PS_TAR_SYMLINK, false},
	        {'3', "a", PS_TAR_OTHER, false},
	        {'4', "a", PS_TAR_OTHER, false},
	        {'6', "a", PS_TAR_OTHER, false},
	        {'V', "a", PS_TAR_OTHER, true},
	        {'S', "a", PS_TAR_SPARSE, true},
	};
	struct tar t = {0};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(types); i++) {
		header_put(&t,
		        (struct header){.type = types[i].type, .name = types[i].name, .size = "00000000003"});
		if (types[i].has_data)
			tar_put(&t, "abc", 3);
	}
	tar_end(&t);
	for (int how = 0; how < WALKS; how++) {
		struct walk w;

		walk_begin(&w, &t, how);
		for (size_t i = 0; i < PS_ARRAY_LEN(types); i++) {
			const struct ps_tar_member *m = member_next(&w);

			assert_string_equal(m->name, types[i].name);
			assert_int_equal(m->kind, types[i].kind);
			assert_int_equal(m->size, types[i].has_data ? 3 : 0);
			assert_int_equal(
			        ps_tar_is_data(m->kind), m->kind == PS_TAR_FILE || m->kind == PS_TAR_SPARSE);
			assert_false(m->name_too_long);
		}
		ends_here(&w);
	}
	tar_free(&t);
}

/* Links -------------------------------------------------------------------------------------------------- */

static void a_link_leads_where_header_long_link_or_pax_say(void **state)
{
	char *hundred = letters('h', 100), *most = letters('m', PS_TAR_MAX_NAME - 1);
	char *pax_most = letters('p', PS_TAR_MAX_NAME);
	struct tar t = {0};
	struct {
		enum ps_tar_kind kind;
		const char *link;
	} const want[] = {
	        {PS_TAR_SYMLINK, "to"},
	        {PS_TAR_HARDLINK, hundred},
	        {PS_TAR_SYMLINK, ""},
	        {PS_TAR_FILE, ""},
	        {PS_TAR_SYMLINK, "long"},
	        {PS_TAR_SYMLINK, "to"},
	        {PS_TAR_HARDLINK, most},
	        {PS_TAR_SYMLINK, "short"},
	        {PS_TAR_SYMLINK, "pax"},
	        {PS_TAR_SYMLINK, "to"},
	        {PS_TAR_HARDLINK, pax_most},
	        {PS_TAR_SYMLINK, "global"},
	        {PS_TAR_SYMLINK, "pax"},
	        {PS_TAR_SYMLINK, "global"},
	        {PS_TAR_FOLDER, ""},
	        {PS_TAR_SYMLINK, "to"},
	};
	static const struct header symlink = {.type = '2', .name = "l", .link = "to"};
	static const struct header hardlink = {.type = '1', .name = "l", .link = "to"};

	(void)state;
	header_put(&t, symlink);
	header_put(&t, (struct header){.type = '1', .name = "l", .link = hundred});
	header_put(&t, (struct header){.type = '2', .name = "l"});
	header_put(&t, (struct header){.type = '0', .name = "l", .link = "to"});
	long_put(&t, 'K', "long");
	header_put(&t, symlink);
	header_put(&t, symlink); /* a long link is the next member's alone */
	long_put(&t, 'K', most);
	header_put(&t, hardlink);
	long_put(&t, 'K', "longer");
	long_put(&t, 'K', "short");
	header_put(&t, symlink);
	long_put(&t, 'K', "long");
	pax_put(&t, 'x', "linkpath", "pax");
	header_put(&t, symlink);
	header_put(&t, symlink);
	pax_put(&t, 'x', "linkpath", pax_most);
	header_put(&t, hardlink);
	pax_put(&t, 'g', "linkpath", "global");
	long_put(&t, 'K', "long");
	header_put(&t, symlink);
	pax_put(&t, 'x', "linkpath", "pax");
	header_put(&t, symlink);
	pax_put(&t, 'x', "linkpath", "");
	header_put(&t, symlink);
	header_put(&t, (struct header){.type = '5', .name = "l", .link = "to"});
	pax_put(&t, 'g', "linkpath", "");
	extra_put(&t, 'K', "", 0);
	header_put(&t, symlink);
	tar_end(&t);
	for (int how = 0; how < WALKS; how++) {
		struct walk w;

		walk_begin(&w, &t, how);
		for (size_t i = 0; i < PS_ARRAY_LEN(want); i++) {
			const struct ps_tar_member *m = member_next(&w);

			assert_string_equal(m->name, "l");
			assert_int_equal(m->kind, want[i].kind);
			assert_string_equal(m->link, want[i].link);
			assert_false(m->name_too_long);
		}
		assert_false(ps_tar_has_global(w.tar)); /* a loader may still begin in the middle */
		ends_here(&w);
	}
	tar_free(&t);
	free(hundred);
	free(most);
	free(pax_most);
}

/* Times -------------------------------------------------------------------------------------------------- */

static void a_time_is_a_headers_or_paxs_whole_seconds(void **state)
{
	static const struct {
		const char *field;
		const char *local, *global; /* NULL: no such pax header */
		int64_t want;
	} times[] = {
	        {NULL, NULL, NULL, 0},
	        {"00000000010", NULL, NULL, 8},
	        {"   17145670\0", NULL, NULL, 3984312},
	        {"777777777777", NULL, NULL, INT64_C(0777777777777)}, /* no byte is left for a terminator */
	        {"\x80\0\0\0\0\0\0\x01\0\0\0\x05", NULL, NULL, (INT64_C(1) << 32) + 5},
	        {"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff", NULL, NULL, INT64_MAX},
	        {"\x80\0\0\0\x80\0\0\0\0\0\0\0", NULL, NULL, 0},
	        {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xfb", NULL, NULL, 0},
	        {"0000000001x\0", NULL, NULL, 0},
	        {"-0000000001\0", NULL, NULL, 0},
	        {"00000000010", "123.456", NULL, 123},
	        {"00000000010", NULL, NULL, 8}, /* a pax time is the next member's alone */
	        {"00000000010", "1700000000", NULL, 1700000000},
	        {"00000000010", "-1.5", NULL, 0},
	        {"00000000010", ".5", NULL, 0},
	        {"00000000010", "1e9", NULL, 0},
	        {"00000000010", "9999999999999999999", NULL, 0},
	        {"00000000010", "", NULL, 8},
	        {"00000000010", NULL, "55.9", 55},
	        {"00000000010", NULL, NULL, 55},
	        {"00000000010", "66.1", NULL, 66},
	        {"00000000010", "", NULL, 55},
	        {"00000000010", NULL, "x", 0},
	        {"00000000010", NULL, "", 8},
	};
	struct tar t = {0};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(times); i++) {
		if (times[i].global)
			pax_put(&t, 'g', "mtime", times[i].global);
		if (times[i].local)
			pax_put(&t, 'x', "mtime", times[i].local);
		header_put(&t, (struct header){.type = '0', .name = "f", .mtime = times[i].field});
	}
	tar_end(&t);
	for (int how = 0; how < WALKS; how++) {
		struct walk w;

		walk_begin(&w, &t, how);
		for (size_t i = 0; i < PS_ARRAY_LEN(times); i++)
			assert_int_equal(member_next(&w)->mtime_s, times[i].want);
		assert_false(ps_tar_has_global(w.tar));
		ends_here(&w);
	}
	tar_free(&t);
}

/* Names that are too long -------------------------------------------------------------------------------- */

/* The next member has lost its name. */
static void dropped_next(struct walk *w, enum ps_tar_kind kind)
{
	const struct ps_tar_member *m = member_next(w);

	assert_true(m->name_too_long);
	assert_string_equal(m->name, "");
	assert_string_equal(m->link, "");
	assert_int_equal(m->kind, kind);
}

/* The next member is read as if it were alone in its tar; its data is "abc". */
static void sound_next(struct walk *w, const char *name)
{
	const struct ps_tar_member *m = member_next(w);
	char data[3];

	assert_false(m->name_too_long);
	assert_string_equal(m->name, name);
	assert_int_equal(m->size, 3);
	assert_int_equal(ps_tar_read(w->tar, data, NULL), 0);
	assert_memory_equal(data, "abc", 3);
}

static void file_put(struct tar *t, const char *name)
{
	header_put(t, (struct header){.type = '0', .name = name, .size = "00000000003"});
	tar_put(t, "abc", 3);
}

static void names_that_are_too_long_are_dropped(void **state)
{
	static const struct header symlink = {.type = '2', .name = "l", .link = "to"};
	char *name = letters('n', PS_TAR_MAX_NAME + 1), *huge = letters('n', 300000);
	struct tar t = {0};
	struct walk w;
	char data[3];

	(void)state;
	header_put(&t, (struct header){.type = 0, .name = "v7/"});
	long_put(&t, 'L', name);
	header_put(&t, (struct header){.type = 0, .name = "cut", .size = "00000000003"});
	tar_put(&t, "abc", 3);
	file_put(&t, "a");
	long_put(&t, 'L', huge);
	long_put(&t, 'L', "short");
	file_put(&t, "cut");
	long_put(&t, 'L', name);
	pax_put(&t, 'x', "path", "pax"); /* takes precedence over a long name */
	file_put(&t, "cut");
	pax_put(&t, 'x', "path", huge);
	file_put(&t, "cut");
	file_put(&t, "b");
	pax_put(&t, 'x', "GNU.sparse.name", name);
	file_put(&t, "cut");
	long_put(&t, 'K', name);
	header_put(&t, symlink);
	long_put(&t, 'K', huge);
	long_put(&t, 'K', "fine");
	header_put(&t, symlink);
	long_put(&t, 'K', name); /* the next member is not a link: nothing is lost */
	file_put(&t, "c");
	long_put(&t, 'L', name);
	header_put(&t, symlink);
	pax_put(&t, 'x', "linkpath", name);
	header_put(&t, symlink);
	pax_put_bytes(&t, 'x', "linkpath", "a\0b", 3);
	header_put(&t, symlink);
	pax_put(&t, 'x', "linkpath", name);
	file_put(&t, "d");
	pax_put(&t, 'g', "path", name);
	file_put(&t, "cut");
	pax_put(&t, 'x', "path", "e");
	file_put(&t, "cut");
	file_put(&t, "cut");
	pax_put(&t, 'g', "path", "");
	file_put(&t, "f");
	tar_end(&t);

	walk_begin(&w, &t, DROPS);
	assert_int_equal(member_next(&w)->kind, PS_TAR_FOLDER);
	dropped_next(&w, PS_TAR_FILE);
	assert_int_equal(w.m.size, 3);
	assert_int_equal(ps_tar_read(w.tar, data, NULL), 0);
	assert_memory_equal(data, "abc", 3);
	sound_next(&w, "a");
	sound_next(&w, "short");
	sound_next(&w, "pax");
	dropped_next(&w, PS_TAR_FILE);
	sound_next(&w, "b");
	dropped_next(&w, PS_TAR_SPARSE);
	dropped_next(&w, PS_TAR_SYMLINK);
	assert_string_equal(member_next(&w)->link, "fine");
	assert_string_equal(w.m.name, "l");
	sound_next(&w, "c");
	dropped_next(&w, PS_TAR_SYMLINK);
	dropped_next(&w, PS_TAR_SYMLINK);
	dropped_next(&w, PS_TAR_SYMLINK);
	sound_next(&w, "d");
	dropped_next(&w, PS_TAR_FILE);
	sound_next(&w, "e");
	dropped_next(&w, PS_TAR_FILE);
	sound_next(&w, "f");
	ends_here(&w);
	tar_free(&t);
	free(name);
	free(huge);
}

/* One extra member before a link, walked in each way; NULL: that walk ends without an error. */
static void refused(const char *strict, const char *drops, char type, const char *key, const char *value)
{
	struct tar t = {0};

	if (key)
		pax_put(&t, type, key, value);
	else
		long_put(&t, type, value);
	header_put(&t, (struct header){.type = '2', .name = "l", .link = "to"});
	tar_end(&t);
	for (int how = 0; how < WALKS; how++) {
		const char *text = how == DROPS ? drops : strict;
		struct walk w;

		walk_begin(&w, &t, how);
		if (text) {
			fails_here(&w, text);
			continue;
		}
		member_next(&w);
		if (how != DROPS) {
			assert_string_equal(w.m.name, "l");
			assert_string_equal(w.m.link, key && strcmp(key, "linkpath") != 0 ? "to" : "");
			assert_false(w.m.name_too_long);
		}
		ends_here(&w);
	}
	tar_free(&t);
}

static void long_names_are_damage_where_they_are_not_dropped(void **state)
{
	char *name = letters('n', PS_TAR_MAX_NAME + 1), *mega = letters('n', 1UL << 20);

	(void)state;
	refused("damaged tar at offset 0: a long name that is empty or longer than 16 KiB", NULL, 'L', NULL,
	        name);
	refused("damaged tar at offset 0: a long link of more than 16 KiB", NULL, 'K', NULL, name);
	refused("damaged tar at offset 0: a pax path that is too long or has a zero byte", NULL, 'x', "path",
	        name);
	refused(NULL, NULL, 'x', "linkpath", name);
	refused("damaged tar at offset 0: a pax path that is too long or has a zero byte", NULL, 'x', "path",
	        mega);
	refused("damaged tar at offset 0: a pax size that is not a number",
	        "damaged tar at offset 0: a pax size that is not a number", 'x', "size", mega);
	refused(NULL, NULL, 'x', "linkpath", mega);
	refused(NULL, NULL, 'x', "comment", mega);
	refused(NULL, NULL, 'g', "SCHILY.xattr.user.x", mega);
	free(name);
	free(mega);
}

static void a_long_name_beyond_the_end_is_damage(void **state)
{
	static const struct {
		const char *size, *text;
	} lengths[] = {
	        {"00000100000", "truncated: the tar ends at offset 1024, before its end mark"},
	        {"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xfc\x00",
	                "damaged tar at offset 0: a size that no file can have: it would end beyond 2^63 - 1 "
	                "bytes"},
	        {"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff",
	                "damaged tar at offset 0: a size that is not a number, or too large"},
	};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(lengths); i++)
		for (const char *type = "LK"; *type; type++) {
			struct tar t = {0};
			struct walk w;

			header_put(
			        &t, (struct header){.type = *type, .name = "extra", .size = lengths[i].size});
			tar_put(&t, "n", 1);
			walk_begin(&w, &t, DROPS);
			fails_here(&w, lengths[i].text);
			tar_free(&t);
		}
}

/* What follows the body would end its record, if it were looked at. */
static void a_pax_record_of_a_wrong_length_is_damage(void **state)
{
	static const char *const bodies[] = {"3 \n", "2 a=b\n", "0 a=b\n", "7 a=b\n", " a=b\n", "x a=b\n"};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(bodies); i++)
		for (int how = 0; how < WALKS; how++) {
			struct tar t = {0};
			struct walk w;
			char size[13], data[32];

			snprintf(size, sizeof(size), "%011o", (unsigned)strlen(bodies[i]));
			snprintf(data, sizeof(data), "%s\n", bodies[i]);
			header_put(&t, (struct header){.type = 'x', .name = "extra", .size = size});
			tar_put(&t, data, strlen(data));
			walk_begin(&w, &t, how);
			fails_here(&w, "damaged tar at offset 0: a pax record of the wrong length");
			tar_free(&t);
		}
}

/* Sources ------------------------------------------------------------------------------------------------ */

static int read_fail(void *arg, void *dst, size_t n, struct ps_error *err)
{
	(void)arg, (void)dst, (void)n;
	return ps_error_set(err, EIO, "the disk is gone");
}

static void a_walk_returns_the_error_of_its_source(void **state)
{
	struct ps_tar_source source = tar_memory_source;
	struct ps_error err = {0};
	struct ps_tar_member m;
	struct tar t = {0};
	struct tar_memory memory;
	struct ps_tar *tar;

	(void)state;
	source.read = read_fail;
	long_put(&t, 'K', "to");
	memory = (struct tar_memory){.p = t.data, .n = t.len};
	tar = ps_tar_new(&source, &memory, true);
	assert_non_null(tar);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(ps_tar_next(tar, &m, &err), -EIO);
		assert_string_equal(err.text, "the disk is gone");
	}
	ps_tar_free(tar);
	tar_free(&t);
}

static void the_source_says_what_a_file_is_that_is_not_a_tar(void **state)
{
	struct tar t = {0};

	(void)state;
	tar_put(&t, "PAR1", 4);
	for (int how = 0; how < WALKS; how++) {
		struct walk w;

		walk_begin(&w, &t, how);
		if (how != STREAM) {
			fails_here(&w, "damaged tar at offset 0: no tar header");
			continue;
		}
		assert_int_equal(ps_tar_next(w.tar, &w.m, &w.err), -EBADMSG);
		assert_ptr_equal(strstr(w.err.text, "a Parquet file"), w.err.text);
		walk_end(&w);
	}
	memcpy(t.data, "ABCD", 4);
	struct walk w;
	walk_begin(&w, &t, STREAM);
	fails_here(&w, "damaged tar at offset 0: no tar header, nor gzip, zstd or lz4 data");
	tar_free(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(each_type_is_a_kind),
	        cmocka_unit_test(a_link_leads_where_header_long_link_or_pax_say),
	        cmocka_unit_test(a_time_is_a_headers_or_paxs_whole_seconds),
	        cmocka_unit_test(names_that_are_too_long_are_dropped),
	        cmocka_unit_test(long_names_are_damage_where_they_are_not_dropped),
	        cmocka_unit_test(a_long_name_beyond_the_end_is_damage),
	        cmocka_unit_test(a_pax_record_of_a_wrong_length_is_damage),
	        cmocka_unit_test(a_walk_returns_the_error_of_its_source),
	        cmocka_unit_test(the_source_says_what_a_file_is_that_is_not_a_tar),
	};

	return cmocka_run_group_tests_name("tar_walk", tests, NULL, NULL);
}
