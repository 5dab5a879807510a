/* The decompressing stage: its threads, decompressors and memory, and what it hands out, caches and
 * remembers. Its origin here has shards of any length and answers from a thread of its own. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include "base/size.h"
#include "decompress/decompress_private.h"
#include "index/index_private.h"
#include "tests/cache/cache_test.h"
#include "tests/cache/index_refuses.h"

#define HANG_S 120
#define STEP_NBYTES (64 * 1024) /* bytes for each progress() */

/* A shard of `size` bytes, which are repetitions of `unit`. */
struct shard {
	const char *url;
	struct ps_strbuf unit;
	uint64_t size;
	/* bytes that the stage had decoded when the shard's first get came */
	_Atomic uint64_t decoded_by_first_get;
};

struct shard_origin {
	struct ps_origin origin; /* first */
	struct ps_decompress *stage;
	struct shard *shards;
	size_t nshards;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	struct ps_origin_get *first, **last; /* chained by work.request */
	bool stop;
	bool answers_first; /* a get returns after its answer */
	unsigned nserved;
	unsigned nfailures; /* this many gets of nbytes_hit fail first, with a retryable error */
	int refuses;        /* errno of every get, not retryable; 0: no get is refused */
	unsigned ncut;      /* this many gets of nbytes_hit then end halfway, without an error */
	size_t nbytes_hit;  /* the length of the gets that fail or are cut; 0: any */
	const char *etag;   /* of answers; NULL: the expected one */
	/* `asked` is called when a get is submitted, `serves` before the get is answered; NULL: nothing is
	 * called. */
	void (*asked)(struct shard_origin *o, const struct ps_origin_get *get);
	void (*serves)(struct shard_origin *o, const struct ps_origin_get *get);
	void *arg;
};

static struct shard *shard_of(struct shard_origin *o, const char *url)
{
	for (size_t i = 0; i < o->nshards; i++)
		if (strcmp(o->shards[i].url, url) == 0)
			return &o->shards[i];
	abort();
}

static void serve(struct shard_origin *o, struct ps_origin_get *get)
{
	const struct shard *shard = shard_of(o, get->url);
	uint8_t *to = get->iov[0].iov_base;

	if (o->serves)
		o->serves(o, get);
	bool hit = o->nbytes_hit == 0 || get->nbytes == o->nbytes_hit;
	if (hit && o->nfailures > 0) {
		o->nfailures--;
		get->done(get, &(struct ps_error){.err = EIO, .retryable = true, .text = "busy"});
		return;
	}
	if (o->refuses) {
		get->done(get, &(struct ps_error){.err = o->refuses, .text = "refused"});
		return;
	}
	get->seen = get->expect;
	if (o->etag)
		snprintf(get->seen.etag, sizeof(get->seen.etag), "%s", o->etag);
	bool cut = hit && o->ncut > 0;
	size_t nbytes = cut ? get->nbytes / 2 : get->nbytes;
	o->ncut -= cut;
	for (size_t at = 0; at < nbytes;) {
		size_t stop = PS_MIN(at + STEP_NBYTES, nbytes);

		while (at < stop) {
			size_t from = (size_t)((get->offset + at) % shard->unit.len);
			size_t n = PS_MIN(shard->unit.len - from, stop - at);

			memcpy(to + at, shard->unit.s + from, n);
			at += n;
		}
		get->progress(get, at);
	}
	get->nbytes_done = get->wire_nbytes = nbytes;
	get->done(get, &(struct ps_error){0});
}

static void *origin_main(void *arg)
{
	struct shard_origin *o = arg;

	for (;;) {
		pthread_mutex_lock(&o->lock);
		while (!o->first && !o->stop)
			pthread_cond_wait(&o->cond, &o->lock);
		struct ps_origin_get *get = o->first;
		if (get && !(o->first = get->work.request))
			o->last = &o->first;
		pthread_mutex_unlock(&o->lock);
		if (!get)
			return NULL;
		serve(o, get);
		PS_LOCK_SCOPE(&o->lock);
		o->nserved++;
		pthread_cond_broadcast(&o->cond);
	}
}

static void origin_get(struct ps_origin *origin, struct ps_origin_get *get)
{
	struct shard_origin *o = (struct shard_origin *)origin;
	struct shard *shard = shard_of(o, get->url);
	uint64_t none = 0;

	atomic_compare_exchange_strong(
	        &shard->decoded_by_first_get, &none, atomic_load(&o->stage->counters.plain_bytes));
	if (o->asked)
		o->asked(o, get);
	PS_LOCK_SCOPE(&o->lock);
	get->work.request = NULL;
	*o->last = get;
	o->last = (struct ps_origin_get **)&get->work.request;
	pthread_cond_broadcast(&o->cond);
	unsigned nserved = o->nserved;
	while (o->answers_first && o->nserved == nserved)
		pthread_cond_wait(&o->cond, &o->lock);
}

/* Does nothing: each get is answered sooner or later. */
static void origin_cancel(struct ps_origin *origin, struct ps_origin_get *get)
{
	(void)origin;
	(void)get;
}

static const struct ps_origin_ops ops = {.name = "shards", .get = origin_get, .cancel = origin_cancel};

struct stage {
	struct ps_store *store;
	struct ps_fill *fill;
	struct ps_decompress *stage;
	struct shard_origin origin;
	unsigned nthreads;
};

static unsigned timeout_ms = 2 * HANG_S * 1000; /* of lookups */

static void stage_start(struct stage *s, const char *dir, uint64_t cache_nbytes, uint64_t memory_nbytes,
        struct shard *shards, size_t nshards)
{
	struct ps_fill_options fill = {
	        .memory_bytes = memory_nbytes, .max_connections = 4, .timeout_ms = timeout_ms};

	alarm(HANG_S);
	*s = (struct stage){.store = test_store_open(dir, cache_nbytes, NULL)};
	assert_int_equal(ps_fill_new(&fill, &s->fill), 0);
	assert_int_equal(ps_decompress_new(s->store, s->fill, &s->stage), 0);
	s->nthreads = s->stage->nthreads;
	s->origin = (struct shard_origin){
	        .origin.ops = &ops, .stage = s->stage, .shards = shards, .nshards = nshards};
	s->origin.last = &s->origin.first;
	pthread_mutex_init(&s->origin.lock, NULL);
	pthread_cond_init(&s->origin.cond, NULL);
	assert_int_equal(pthread_create(&s->origin.thread, NULL, origin_main, &s->origin), 0);
}

static void stage_stop(struct stage *s)
{
	ps_decompress_abort(s->stage, &s->origin.origin);
	ps_decompress_drain(s->stage, &s->origin.origin);
	{
		PS_LOCK_SCOPE(&s->origin.lock);
		s->origin.stop = true;
		pthread_cond_signal(&s->origin.cond);
	}
	pthread_join(s->origin.thread, NULL);
	ps_decompress_free(s->stage);
	ps_fill_free(s->fill);
	ps_store_close(s->store);
	alarm(0);
}

/* Frames ------------------------------------------------------------------------------------------------- */

/* Appends a frame, with a size in its header if `sized`. */
static void add_frame_with(
        struct ps_strbuf *to, const void *plain, size_t n, int window_log, bool sized, bool checksum)
{
	ZSTD_CCtx *cctx = ZSTD_createCCtx();
	size_t cap = ZSTD_compressBound(n) + 64;
	ps_autofree uint8_t *packed = malloc(cap);
	ZSTD_inBuffer in = {.src = plain, .size = n};
	ZSTD_outBuffer out = {.dst = packed, .size = cap};

	assert_non_null(cctx);
	assert_non_null(packed);
	ZSTD_CCtx_setParameter(cctx, ZSTD_c_compressionLevel, 1);
	ZSTD_CCtx_setParameter(cctx, ZSTD_c_checksumFlag, checksum);
	if (window_log)
		ZSTD_CCtx_setParameter(cctx, ZSTD_c_windowLog, window_log);
	if (sized)
		ZSTD_CCtx_setPledgedSrcSize(cctx, n);
	else /* the first call must not end the frame: the library would know its size */
		assert_int_equal(ZSTD_compressStream2(cctx, &out, &(ZSTD_inBuffer){.src = plain, .size = 1},
		                         ZSTD_e_continue),
		        ZSTD_compressStream2(cctx, &out, &(ZSTD_inBuffer){0}, ZSTD_e_continue));
	in.pos = sized ? 0 : 1;
	assert_int_equal(ZSTD_compressStream2(cctx, &out, &in, ZSTD_e_end), 0);
	ps_strbuf_addn(to, packed, out.pos);
	ZSTD_freeCCtx(cctx);
}

static void add_frame(struct ps_strbuf *to, const void *plain, size_t n, int window_log, bool sized)
{
	add_frame_with(to, plain, n, window_log, sized, false);
}

static void fill_zeros(struct shard *shard)
{
	ps_autofree uint8_t *plain = calloc(1, PS_MIB);

	add_frame(&shard->unit, plain, PS_MIB, 0, false);
	shard->size = 4 * PS_GIB / shard->unit.len * shard->unit.len;
}

static uint8_t byte_at(uint64_t offset)
{
	return (uint8_t)(offset >> 12 ^ offset >> 3);
}

/* Waiting ------------------------------------------------------------------------------------------------ */

struct answer {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool done;
	int errnum;
	uint64_t size;
};
#define ANSWER                                                                      \
	{                                                                           \
		.lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER \
	}

static void answered(struct answer *a, int errnum, uint64_t size)
{
	PS_LOCK_SCOPE(&a->lock);
	a->errnum = errnum;
	a->size = size;
	a->done = true;
	pthread_cond_signal(&a->cond);
}

static void sized(void *arg, int errnum, uint64_t size, const char *text)
{
	(void)text;
	answered(arg, errnum, size);
}

static int wait_for(struct answer *a)
{
	PS_LOCK_SCOPE(&a->lock);
	while (!a->done)
		pthread_cond_wait(&a->cond, &a->lock);
	a->done = false;
	return a->errnum;
}

static struct ps_decompressing *decompressing_of(struct stage *s, const struct shard *shard)
{
	const struct ps_remote source = {.size = shard->size, .mtime_s = 1, .etag = "\"v1\""};
	struct ps_decompressing *decompressing = NULL;

	assert_int_equal(ps_decompressing_get(s->stage, &s->origin.origin, shard->url, "x.tar", &source,
	                         PS_CODING_ZSTD, &decompressing),
	        0);
	return decompressing;
}

struct one_get {
	struct ps_origin_get get; /* first */
	struct iovec iov;
	uint8_t data[PS_CHUNK_SIZE];
	struct ps_error err;
	struct answer answer;
};

static void get_progress(struct ps_origin_get *get, size_t nbytes_so_far)
{
	(void)get;
	(void)nbytes_so_far;
}

static void get_done(struct ps_origin_get *get, const struct ps_error *err)
{
	struct one_get *one = (struct one_get *)get;

	one->err = *err;
	answered(&one->answer, err->err, 0);
}

static void begin_chunk(struct ps_decompressing *decompressing, const struct shard *shard, uint64_t offset,
        const char *etag, struct one_get *one)
{
	struct ps_origin *origin = ps_decompressing_as_origin(decompressing);

	*one = (struct one_get){.answer = ANSWER};
	one->iov = (struct iovec){.iov_base = one->data, .iov_len = sizeof(one->data)};
	one->get = (struct ps_origin_get){.url = shard->url,
	        .offset = offset,
	        .nbytes = sizeof(one->data),
	        .iov = &one->iov,
	        .niov = 1,
	        .progress = get_progress,
	        .done = get_done};
	snprintf(one->get.expect.etag, sizeof(one->get.expect.etag), "%s", etag);
	origin->ops->get(origin, &one->get);
}

/* Gets a chunk. */
static int try_chunk(struct ps_decompressing *decompressing, const struct shard *shard, uint64_t offset,
        struct one_get *one)
{
	begin_chunk(decompressing, shard, offset, "", one);
	return wait_for(&one->answer);
}

/* Gets a chunk and checks its bytes. */
static void get_chunk(struct ps_decompressing *decompressing, const struct shard *shard, uint64_t offset)
{
	struct one_get one;

	assert_int_equal(try_chunk(decompressing, shard, offset, &one), 0);
	for (size_t i = 0; i < sizeof(one.data); i++)
		assert_int_equal(one.data[i], byte_at(offset + i));
}

/* Tests -------------------------------------------------------------------------------------------------- */

static void a_new_shard_gets_a_turn_soon_while_all_threads_decode(void **state)
{
	enum { LONG = 8, ALL = LONG + 1 };
	static const char *const urls[ALL] = {"0", "1", "2", "3", "4", "5", "6", "7", "short"};
	struct shard shards[ALL] = {0};
	struct answer answers[ALL];
	struct ps_decompressing *all_decompressing[ALL];
	struct stage s;

	for (size_t i = 0; i < ALL; i++) {
		shards[i].url = urls[i];
		answers[i] = (struct answer)ANSWER;
		fill_zeros(&shards[i]);
	}
	ps_strbuf_reset(&shards[LONG].unit);
	ps_strbuf_add(&shards[LONG].unit, "damaged");
	shards[LONG].size = shards[LONG].unit.len;
	stage_start(&s, *state, 128 * PS_MIB, 192 * PS_MIB, shards, ALL);

	for (unsigned i = 0; i < s.nthreads; i++) {
		all_decompressing[i] = decompressing_of(&s, &shards[i]);
		ps_decompressing_size(all_decompressing[i], sized, &answers[i]);
	}
	while (atomic_load(&s.stage->counters.plain_bytes) < s.nthreads * PS_MIB)
		sched_yield();
	struct ps_decompressing *comes = decompressing_of(&s, &shards[LONG]);
	ps_decompressing_size(comes, sized, &answers[LONG]);
	uint64_t before = atomic_load(&s.stage->counters.plain_bytes);
	assert_int_equal(wait_for(&answers[LONG]), EIO);
	/* Each thread decodes until the end of its turn and of its present piece. */
	uint64_t turned = atomic_load(&shards[LONG].decoded_by_first_get);
	if (turned > before)
		assert_true(turned - before <= s.nthreads * 8 * PS_MIB);

	ps_decompressing_put(comes);
	for (unsigned i = 0; i < s.nthreads; i++) {
		assert_int_equal(wait_for(&answers[i]), EFBIG); /* larger than the cache */
		ps_decompressing_put(all_decompressing[i]);
	}
	stage_stop(&s);
	for (size_t i = 0; i < ALL; i++)
		ps_strbuf_fini(&shards[i].unit);
}

/* Each get begins where no idle decompressor can continue, while idle decompressors take all places. If gets
 * waited until the idle ones time out, the test would take longer than HANG_S. */
static void idle_decompressors_are_replaced_at_once(void **state)
{
	const uint64_t nbytes = 20 * PS_MIB;
	ps_autofree uint8_t *plain = malloc(nbytes);
	struct shard shard = {.url = "one"};
	struct answer answer = ANSWER;
	struct stage s;

	for (uint64_t i = 0; i < nbytes; i++)
		plain[i] = byte_at(i);
	add_frame(&shard.unit, plain, nbytes, 0, true);
	shard.size = shard.unit.len;
	stage_start(&s, *state, 8 * PS_MIB, 192 * PS_MIB, &shard, 1);
	struct ps_decompressing *decompressing = decompressing_of(&s, &shard);
	ps_decompressing_size(decompressing, sized, &answer);
	assert_int_equal(wait_for(&answer), 0);
	assert_int_equal(answer.size, nbytes);
	for (int round = 0; round < 20; round++)
		for (uint64_t at = nbytes; at > 0; at -= 4 * PS_MIB)
			get_chunk(decompressing, &shard, at - 4 * PS_MIB);
	ps_decompressing_put(decompressing);
	stage_stop(&s);
	ps_strbuf_fini(&shard.unit);
}

/* With the least possible memory, `nidle` decompressors of a shard that is too large for the cache are idle;
 * then the size of another shard is looked up. The frames of both shards have windows of 2^window_log
 * bytes. */
static void a_lookup_finds_room(const char *dir, unsigned nidle, int window_log)
{
	const uint64_t nbytes = 20 * PS_MIB;
	ps_autofree uint8_t *plain = malloc(nbytes);
	struct shard shards[] = {{.url = "idle"}, {.url = "other"}};
	struct ps_decompressing *decompressing[PS_ARRAY_LEN(shards)];
	struct answer answer = ANSWER;
	struct stage s;

	for (uint64_t i = 0; i < nbytes; i++)
		plain[i] = byte_at(i);
	add_frame(&shards[0].unit, plain, nbytes, window_log, true);
	add_frame(&shards[1].unit, plain, PS_MIB, window_log, false);
	for (size_t i = 0; i < PS_ARRAY_LEN(shards); i++)
		shards[i].size = shards[i].unit.len;
	stage_start(&s, dir, 8 * PS_MIB, 24 * PS_MIB, shards, PS_ARRAY_LEN(shards));
	for (size_t i = 0; i < PS_ARRAY_LEN(shards); i++)
		decompressing[i] = decompressing_of(&s, &shards[i]);
	ps_decompressing_size(decompressing[0], sized, &answer);
	assert_int_equal(wait_for(&answer), 0);
	for (unsigned i = 0; i < nidle; i++)
		get_chunk(decompressing[0], &shards[0], (16 - 4 * i) * PS_MIB);
	{
		PS_LOCK_SCOPE(&s.stage->lock);
		assert_int_equal(s.stage->ndecompressors, nidle);
	}
	uint64_t begun_ns = ps_clock_mono_ns();
	ps_decompressing_size(decompressing[1], sized, &answer);
	assert_int_equal(wait_for(&answer), 0);
	assert_int_equal(answer.size, PS_MIB);
	assert_true(ps_clock_mono_ns() - begun_ns < PS_DECOMPRESS_IDLE_NS - PS_NS_PER_S);
	for (size_t i = 0; i < PS_ARRAY_LEN(shards); i++)
		ps_decompressing_put(decompressing[i]);
	stage_stop(&s);
	for (size_t i = 0; i < PS_ARRAY_LEN(shards); i++)
		ps_strbuf_fini(&shards[i].unit);
}

static void idle_decompressors_are_replaced_for_a_lookup(void **state)
{
	a_lookup_finds_room(*state, 2, 17);
}

/* A decompressor takes 3 MiB and a window of 4 MiB: there are places for two, but there is memory for
 * one. */
static void an_idle_decompressor_gives_up_its_window_for_another(void **state)
{
	a_lookup_finds_room(*state, 1, 22);
}

/* The stage has the least possible memory. The first frame's bytes are requested far ahead, since the
 * decompressor waits for them, and the second frame needs the largest window that is allowed. */
static void the_only_decompressor_never_waits_for_memory(void **state)
{
	const size_t nbytes = 12 * PS_MIB;
	ps_autofree uint8_t *plain = malloc(nbytes);
	struct shard shard = {.url = "windows"};
	struct answer answer = ANSWER;
	uint64_t x = 1;
	struct stage s;

	for (size_t i = 0; i < nbytes; i++) {
		x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		plain[i] = (uint8_t)(x >> 56);
	}
	for (int i = 0; i < 4; i++) {
		add_frame(&shard.unit, plain, nbytes, 17, false);
		add_frame(&shard.unit, plain, nbytes, 22, false);
	}
	shard.size = shard.unit.len;
	stage_start(&s, *state, PS_GIB, 24 * PS_MIB, &shard, 1);
	struct ps_decompressing *decompressing = decompressing_of(&s, &shard);
	ps_decompressing_size(decompressing, sized, &answer);
	assert_int_equal(wait_for(&answer), 0);
	assert_int_equal(answer.size, 8 * nbytes);
	ps_decompressing_put(decompressing);
	stage_stop(&s);
	ps_strbuf_fini(&shard.unit);
}

/* Four shards are decoded. There are places for two decompressors, and memory for the window of one. */
static void decompressors_wait_for_each_other_s_windows(void **state)
{
	enum { ALL = 4 };
	static const char *const urls[ALL] = {"0", "1", "2", "3"};
	const size_t nbytes = 12 * PS_MIB;
	ps_autofree uint8_t *plain = calloc(1, nbytes);
	struct shard shards[ALL] = {0};
	struct answer answers[ALL];
	struct ps_decompressing *decompressing[ALL];
	struct stage s;

	add_frame(&shards[0].unit, plain, nbytes, 22, false);
	shards[0].size = shards[0].unit.len;
	for (size_t i = 0; i < ALL; i++) {
		shards[i] = shards[0];
		shards[i].url = urls[i];
		answers[i] = (struct answer)ANSWER;
	}
	stage_start(&s, *state, PS_GIB, 24 * PS_MIB, shards, ALL);
	for (size_t i = 0; i < ALL; i++) {
		decompressing[i] = decompressing_of(&s, &shards[i]);
		ps_decompressing_size(decompressing[i], sized, &answers[i]);
	}
	for (size_t i = 0; i < ALL; i++) {
		assert_int_equal(wait_for(&answers[i]), 0);
		assert_int_equal(answers[i].size, nbytes);
		ps_decompressing_put(decompressing[i]);
	}
	stage_stop(&s);
	ps_strbuf_fini(&shards[0].unit);
}

/* Fills the shard with frames of `frame` bytes, in total `nbytes`, decoded. The last frame has no size in
 * its header unless `sized`, as if it came from a pipe. */
static void fill_frames(struct shard *shard, uint64_t nbytes, size_t frame, bool sized)
{
	ps_autofree uint8_t *plain = malloc(frame);
	uint64_t x = 1;

	for (uint64_t at = 0; at < nbytes; at += frame) {
		size_t n = (size_t)PS_MIN((uint64_t)frame, nbytes - at);

		for (size_t i = 0; i < n; i++) {
			x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
			plain[i] = i % 3 ? (uint8_t)(x >> 60) : byte_at(at + i);
		}
		add_frame(&shard->unit, plain, n, 0, sized || at + frame < nbytes);
	}
	shard->size = shard->unit.len;
}

/* The number of bytes that are decoded before the size of a shard of frames is known. */
static uint64_t decoded_for_size(const char *dir, bool local, bool sized_frames)
{
	const uint64_t nbytes = 20 * PS_MIB + 17;
	struct shard shard = {.url = "frames"};
	struct answer answer = ANSWER;
	struct stage s;

	fill_frames(&shard, nbytes, 700001, sized_frames);
	stage_start(&s, dir, 64 * PS_MIB, 192 * PS_MIB, &shard, 1);
	s.origin.origin.local = local;
	struct ps_decompressing *decompressing = decompressing_of(&s, &shard);
	ps_decompressing_size(decompressing, sized, &answer);
	assert_int_equal(wait_for(&answer), 0);
	assert_int_equal(answer.size, nbytes);
	uint64_t decoded = atomic_load(&s.stage->counters.plain_bytes);
	ps_decompressing_put(decompressing);
	stage_stop(&s);
	ps_strbuf_fini(&shard.unit);
	return decoded;
}

static void frame_headers_of_a_local_shard_give_its_size(void **state)
{
	assert_int_equal(decoded_for_size(*state, true, true), 0);
}

static void a_remote_shard_is_decoded_for_its_size(void **state)
{
	assert_int_equal(decoded_for_size(*state, false, true), 20 * PS_MIB + 17);
}

static void a_local_shard_whose_frame_declares_no_size_is_decoded(void **state)
{
	assert_int_equal(decoded_for_size(*state, true, false), 20 * PS_MIB + 17);
}

static void add_le32(struct ps_strbuf *to, uint32_t v)
{
	for (int i = 0; i < 4; i++) {
		uint8_t byte = (uint8_t)(v >> (8 * i));

		ps_strbuf_addn(to, &byte, 1);
	}
}

/* Fills the shard with frames and a seek table, which declares `declared` bytes for each frame. ret_at:
 * where each frame begins. */
static void fill_seekable(
        struct shard *shard, uint32_t frame, uint32_t declared, uint32_t nframes, size_t *ret_at)
{
	ps_autofree uint8_t *plain = malloc(frame);
	ps_autostrbuf struct ps_strbuf table = {0};

	for (uint32_t n = 0; n < nframes; n++) {
		for (uint32_t i = 0; i < frame; i++)
			plain[i] = byte_at((uint64_t)n * frame + i);
		ret_at[n] = shard->unit.len;
		add_frame(&shard->unit, plain, frame, 0, true);
		add_le32(&table, (uint32_t)(shard->unit.len - ret_at[n]));
		add_le32(&table, declared);
	}
	add_le32(&shard->unit, 0x184D2A5E);
	add_le32(&shard->unit, (uint32_t)table.len + 9);
	ps_strbuf_addn(&shard->unit, table.s, table.len);
	add_le32(&shard->unit, nframes);
	ps_strbuf_addn(&shard->unit, "", 1);
	add_le32(&shard->unit, 0x8F92EAB1);
	shard->size = shard->unit.len;
}

/* Two frames have a wrong magic number. Reads of these frames fail, whether decoding begins there or reaches
 * them. */
static void a_frame_without_its_magic_number_is_an_error(void **state)
{
	enum { FRAMES = 300, FRAME = 2 * PS_CHUNK_SIZE };
	struct shard shard = {.url = "seekable"};
	struct answer answer = ANSWER;
	size_t at[FRAMES];
	struct one_get one;
	struct stage s;

	fill_seekable(&shard, FRAME, FRAME, FRAMES, at);
	memset(shard.unit.s + at[FRAMES / 2], 'x', 4);
	memset(shard.unit.s + at[FRAMES - 1], 'x', 4);
	stage_start(&s, *state, 256 * PS_MIB, 192 * PS_MIB, &shard, 1);
	struct ps_decompressing *decompressing = decompressing_of(&s, &shard);
	ps_decompressing_size(decompressing, sized, &answer);
	assert_int_equal(wait_for(&answer), 0);
	assert_int_equal(answer.size, FRAMES * FRAME);
	assert_int_equal(
	        try_chunk(decompressing, &shard, (uint64_t)FRAMES / 2 * FRAME + PS_CHUNK_SIZE, &one), EIO);
	get_chunk(decompressing, &shard, (uint64_t)(FRAMES / 2 - 1) * FRAME);
	get_chunk(decompressing, &shard, (uint64_t)(FRAMES / 2 + 1) * FRAME);
	assert_int_equal(try_chunk(decompressing, &shard, (uint64_t)(FRAMES - 1) * FRAME, &one), EIO);
	/* No reader asks for bytes after the shard's end; if one did, that would be an error, too. */
	assert_int_equal(try_chunk(decompressing, &shard, (uint64_t)FRAMES * FRAME, &one), EIO);
	ps_decompressing_put(decompressing);
	stage_stop(&s);
	ps_strbuf_fini(&shard.unit);
}

/* A seek table that declares more than the largest file size cannot be right: the file could not be
 * opened. */
static void a_seek_table_beyond_the_largest_file_size_is_not_used(void **state)
{
	enum { FRAMES = 4200, FRAME = 100 };
	struct shard shard = {.url = "seekable"};
	struct answer answer = ANSWER;
	size_t at[FRAMES];
	struct stage s;

	_Static_assert(FRAMES * (uint64_t)UINT32_MAX > PS_OBJECT_MAX_NBYTES, "");
	fill_seekable(&shard, FRAME, UINT32_MAX, FRAMES, at);
	stage_start(&s, *state, 64 * PS_MIB, 192 * PS_MIB, &shard, 1);
	struct ps_decompressing *decompressing = decompressing_of(&s, &shard);
	ps_decompressing_size(decompressing, sized, &answer);
	assert_int_equal(wait_for(&answer), 0);
	assert_int_equal(answer.size, FRAMES * FRAME);
	get_chunk(decompressing, &shard, 0);
	ps_decompressing_put(decompressing);
	stage_stop(&s);
	ps_strbuf_fini(&shard.unit);
}

/* A busy origin refuses the headers four times in a row. */
static void failed_requests_for_headers_are_retried(void **state)
{
	const uint64_t nbytes = 2 * PS_MIB + 17;
	struct shard shard = {.url = "frames"};
	struct answer answer = ANSWER;
	struct stage s;

	fill_frames(&shard, nbytes, 700001, true);
	stage_start(&s, *state, 64 * PS_MIB, 192 * PS_MIB, &shard, 1);
	s.origin.origin.local = true;
	s.origin.nfailures = 4;
	struct ps_decompressing *decompressing = decompressing_of(&s, &shard);
	ps_decompressing_size(decompressing, sized, &answer);
	assert_int_equal(wait_for(&answer), 0);
	assert_int_equal(answer.size, nbytes);
	assert_int_equal(atomic_load(&s.stage->counters.plain_bytes), 0);
	ps_decompressing_put(decompressing);
	stage_stop(&s);
	ps_strbuf_fini(&shard.unit);
}

/* Requests for headers are not retried after an error that is not retryable. */
static void refused_requests_for_headers_are_an_error(void **state)
{
	struct shard shard = {.url = "frames"};
	struct answer answer = ANSWER;
	struct stage s;

	fill_frames(&shard, 2 * PS_MIB, 700001, true);
	stage_start(&s, *state, 64 * PS_MIB, 192 * PS_MIB, &shard, 1);
	s.origin.refuses = EACCES;
	struct ps_decompressing *decompressing = decompressing_of(&s, &shard);
	ps_decompressing_size(decompressing, sized, &answer);
	assert_int_equal(wait_for(&answer), EACCES);
	s.origin.refuses = EHOSTUNREACH;
	ps_decompressing_size(decompressing, sized, &answer);
	assert_int_equal(wait_for(&answer), EHOSTUNREACH);
	s.origin.refuses = 0;
	ps_decompressing_size(decompressing, sized, &answer);
	assert_int_equal(wait_for(&answer), 0);
	assert_int_equal(answer.size, 2 * PS_MIB);
	ps_decompressing_put(decompressing);
	stage_stop(&s);
	ps_strbuf_fini(&shard.unit);
}

static void wait_until_let(struct shard_origin *o, const struct ps_origin_get *get)
{
	_Atomic bool *let = o->arg;

	(void)get;
	while (!atomic_load(let))
		usleep(1000);
}

static void a_cancelled_get_ends_before_the_origin_answers(void **state)
{
	struct shard shard = {.url = "frames"};
	struct answer answer = ANSWER;
	_Atomic bool let = false;
	struct one_get one;
	struct stage s;

	fill_frames(&shard, 2 * PS_MIB, 700001, true);
	stage_start(&s, *state, 64 * PS_MIB, 192 * PS_MIB, &shard, 1);
	s.origin.origin.local = true;
	struct ps_decompressing *decompressing = decompressing_of(&s, &shard);
	ps_decompressing_size(decompressing, sized, &answer);
	assert_int_equal(wait_for(&answer), 0);
	struct ps_origin *origin = ps_decompressing_as_origin(decompressing);
	s.origin.arg = &let;
	s.origin.serves = wait_until_let;
	begin_chunk(decompressing, &shard, 0, "", &one);
	origin->ops->cancel(origin, &one.get);
	assert_int_equal(wait_for(&one.answer), ECANCELED);
	atomic_store(&let, true);
	assert_int_equal(try_chunk(decompressing, &shard, 0, &one), 0);
	origin->ops->cancel(origin, &one.get); /* too late */
	ps_decompressing_put(decompressing);
	stage_stop(&s);
	ps_strbuf_fini(&shard.unit);
}

/* After an answer that failed or ended early, the bytes that are not yet decoded are requested again. */
static void size_of_origin_that_falters(const char *dir, unsigned nfailures, unsigned ncut)
{
	const uint64_t nbytes = 20 * PS_MIB + 17;
	struct shard shard = {.url = "frames"};
	struct answer answer = ANSWER;
	struct stage s;

	fill_frames(&shard, nbytes, 700001, true);
	assert_true(shard.size > 4 * PS_PIECE_NBYTES);
	stage_start(&s, dir, 64 * PS_MIB, 192 * PS_MIB, &shard, 1);
	s.origin.nbytes_hit = PS_PIECE_NBYTES; /* not headers */
	s.origin.nfailures = nfailures;
	s.origin.ncut = ncut;
	struct ps_decompressing *decompressing = decompressing_of(&s, &shard);
	ps_decompressing_size(decompressing, sized, &answer);
	assert_int_equal(wait_for(&answer), 0);
	assert_int_equal(answer.size, nbytes);
	assert_int_equal(s.origin.nfailures + s.origin.ncut, 0);
	ps_decompressing_put(decompressing);
	stage_stop(&s);
	ps_strbuf_fini(&shard.unit);
}

static void pieces_that_fail_are_requested_again(void **state)
{
	size_of_origin_that_falters(*state, 2, 0);
}

static void pieces_that_end_early_are_requested_again(void **state)
{
	size_of_origin_that_falters(*state, 0, 2);
}

/* The bytes of a request come while the thread that sends it has dropped the lock. They wake no thread: the
 * sending thread has to look again. */
static void an_answer_before_the_request_returns_is_seen(void **state)
{
	const uint64_t nbytes = 20 * PS_MIB + 17;
	struct shard shard = {.url = "frames"};
	struct answer answer = ANSWER;
	struct stage s;

	fill_frames(&shard, nbytes, 700001, true);
	stage_start(&s, *state, 64 * PS_MIB, 192 * PS_MIB, &shard, 1);
	s.origin.answers_first = true;
	struct ps_decompressing *decompressing = decompressing_of(&s, &shard);
	ps_decompressing_size(decompressing, sized, &answer);
	assert_int_equal(wait_for(&answer), 0);
	assert_int_equal(answer.size, nbytes);
	ps_decompressing_put(decompressing);
	stage_stop(&s);
	ps_strbuf_fini(&shard.unit);
}

/* The only decompressor; NULL: there is none. The lock is held. */
static const struct ps_decompressor *the_decompressor(const struct ps_decompress *stage)
{
	const struct ps_list *head =
	        &PS_CONTAINER_OF(stage->shards.next, struct ps_decompressing, link)->decompressors;

	return ps_list_empty(head) ? NULL : PS_CONTAINER_OF(head->next, struct ps_decompressor, link);
}

static void wait_for_state(struct ps_decompress *stage, enum ps_decompressor_state state)
{
	for (bool there = false; !there; usleep(1000)) {
		PS_LOCK_SCOPE(&stage->lock);
		const struct ps_decompressor *decompressor = the_decompressor(stage);
		there = decompressor && decompressor->state == state;
	}
}

/* The first piece fails while others are requested; the second one is answered after an abort. */
static void abort_at_second_piece(struct shard_origin *o, const struct ps_origin_get *get)
{
	bool *awaited = o->arg;

	if (get->nbytes != PS_PIECE_NBYTES || get->offset > PS_PIECE_NBYTES)
		return;
	wait_for_state(o->stage, get->offset ? PS_DECOMPRESSOR_RETRY : PS_DECOMPRESSOR_INPUT);
	if (get->offset == 0)
		return;
	ps_decompress_abort(o->stage, &o->origin);
	wait_for_state(o->stage, PS_DECOMPRESSOR_ENDING);
	PS_LOCK_SCOPE(&o->stage->lock);
	*awaited = o->stage->spare_nbytes == 0 && the_decompressor(o->stage)->npending > 0;
}

static void an_abort_between_attempts_waits_for_requested_pieces(void **state)
{
	struct shard shard = {.url = "frames"};
	struct answer answer = ANSWER;
	bool awaited = false;
	struct stage s;

	fill_frames(&shard, 20 * PS_MIB, 700001, true);
	stage_start(&s, *state, 64 * PS_MIB, 192 * PS_MIB, &shard, 1);
	s.origin.nbytes_hit = PS_PIECE_NBYTES;
	s.origin.nfailures = 1;
	s.origin.serves = abort_at_second_piece;
	s.origin.arg = &awaited;
	struct ps_decompressing *decompressing = decompressing_of(&s, &shard);
	ps_decompressing_size(decompressing, sized, &answer);
	assert_int_equal(wait_for(&answer), ECANCELED);
	ps_decompressing_put(decompressing);
	stage_stop(&s);
	assert_true(awaited);
	ps_strbuf_fini(&shard.unit);
}

/* The lookup ends by itself, without another attempt. */
static void requests_for_headers_that_no_reader_waits_for_are_not_retried(void **state)
{
	struct shard shard = {.url = "frames"};
	struct answer answer = ANSWER;
	struct stage s;
	bool gone = false;

	fill_frames(&shard, 2 * PS_MIB + 17, 700001, true);
	timeout_ms = 1500; /* between the third and the fourth attempt */
	stage_start(&s, *state, 64 * PS_MIB, 192 * PS_MIB, &shard, 1);
	timeout_ms = 2 * HANG_S * 1000;
	s.origin.nfailures = 1000;
	struct ps_decompressing *decompressing = decompressing_of(&s, &shard);
	ps_decompressing_size(decompressing, sized, &answer);
	assert_int_equal(wait_for(&answer), EIO); /* the origin's error */
	ps_decompressing_put(decompressing);
	for (int i = 0; i < 500 && !gone; i++, usleep(10000)) {
		PS_LOCK_SCOPE(&s.stage->lock);
		gone = ps_list_empty(&s.stage->shards);
	}
	assert_true(gone);
	assert_in_range(s.origin.nfailures, 1000 - 3, 1000 - 1);
	stage_stop(&s);
	ps_strbuf_fini(&shard.unit);
}

static void bytes_of_another_version_are_not_decoded(void **state)
{
	struct shard shard = {.url = "frames"};
	struct answer answer = ANSWER;
	struct stage s;

	fill_frames(&shard, 3 * PS_MIB, 700001, true);
	stage_start(&s, *state, 64 * PS_MIB, 192 * PS_MIB, &shard, 1);
	s.origin.etag = "\"v2\"";
	struct ps_decompressing *decompressing = decompressing_of(&s, &shard);
	ps_decompressing_size(decompressing, sized, &answer);
	assert_int_equal(wait_for(&answer), ESTALE);
	ps_decompressing_put(decompressing);
	stage_stop(&s);
	ps_strbuf_fini(&shard.unit);
}

/* The list gives no ETag: the version is that of the first answer, or the one that the reader's object has. */
static void the_version_of_a_shard_without_an_etag_is_learned_once(void **state)
{
	const struct ps_remote none = {.size = 0, .mtime_s = 1};

	for (int known = 0; known < 2; known++) {
		struct shard shard = {.url = "frames"};
		struct ps_decompressing *decompressing = NULL;
		struct ps_remote source = none;
		struct one_get one;
		struct stage s;
		char dir[4096];

		fill_frames(&shard, 64 * PS_MIB, 700001, true);
		source.size = shard.size;
		snprintf(dir, sizeof(dir), "%s/%d", (char *)*state, known);
		assert_int_equal(mkdir(dir, 0700), 0);
		stage_start(&s, dir, 64 * PS_MIB, 192 * PS_MIB, &shard, 1);
		assert_int_equal(ps_decompressing_get(s.stage, &s.origin.origin, shard.url, "x.tar", &source,
		                         PS_CODING_ZSTD, &decompressing),
		        0);
		if (!known) {
			s.origin.etag = "\"v1\"";
			assert_int_equal(try_chunk(decompressing, &shard, 0, &one), 0);
		}
		s.origin.etag = "\"v2\"";
		begin_chunk(decompressing, &shard, known ? 0 : 60 * PS_MIB, known ? "\"v1\"" : "", &one);
		assert_int_equal(wait_for(&one.answer), ESTALE);
		ps_decompressing_put(decompressing);
		stage_stop(&s);
		ps_strbuf_fini(&shard.unit);
	}
}

/* The window has 128 MiB, the stage's memory 12 MiB. */
static void a_window_larger_than_the_memory_is_an_error(void **state)
{
	ps_autofree uint8_t *plain = calloc(1, PS_MIB);
	struct shard shard = {.url = "window"};
	struct answer answer = ANSWER;
	struct stage s;

	add_frame(&shard.unit, plain, PS_MIB, 27, false);
	shard.size = shard.unit.len;
	stage_start(&s, *state, 64 * PS_MIB, 24 * PS_MIB, &shard, 1);
	struct ps_decompressing *decompressing = decompressing_of(&s, &shard);
	ps_decompressing_size(decompressing, sized, &answer);
	assert_int_equal(wait_for(&answer), EFBIG);
	ps_decompressing_put(decompressing);
	stage_stop(&s);
	ps_strbuf_fini(&shard.unit);
}

/* The frame is too large to be held back and is damaged near its end: bytes that were handed out before may
 * be wrong, too. */
static void bytes_handed_out_of_a_damaged_frame_are_not_cached(void **state)
{
	const size_t nbytes = 24 * PS_MIB;
	ps_autofree uint8_t *plain = malloc(nbytes);
	struct shard shard = {.url = "damaged"};
	struct answer answer = ANSWER;
	struct ps_object *object;
	struct one_get one;
	uint64_t x = 1;
	struct stage s;

	for (size_t i = 0; i < nbytes; i++) {
		x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		plain[i] = (uint8_t)(x >> 56);
	}
	add_frame(&shard.unit, plain, nbytes, 17, true);
	shard.size = shard.unit.len;
	memset(shard.unit.s + shard.size * 3 / 4, 0xff, 300000); /* hits headers of blocks, too */
	stage_start(&s, *state, 256 * PS_MIB, 192 * PS_MIB, &shard, 1);
	struct ps_decompressing *decompressing = decompressing_of(&s, &shard);
	ps_decompressing_size(decompressing, sized, &answer);
	assert_int_equal(wait_for(&answer), 0); /* the frame's header declares the size */
	assert_int_equal(ps_decompressing_object(decompressing, 0, true, &object), 0);
	assert_int_equal(try_chunk(decompressing, &shard, 0, &one), 0);
	assert_memory_equal(one.data, plain, PS_CHUNK_SIZE);
	assert_int_equal(try_chunk(decompressing, &shard, nbytes - PS_CHUNK_SIZE, &one), EIO);
	ps_object_put(object);
	assert_int_equal(ps_decompressing_object(decompressing, 0, true, &object), 0);
	for (uint64_t block = 0; block < nbytes / PS_BLOCK_SIZE; block++)
		assert_int_equal(ps_object_chunks(object, block), 0);
	ps_object_put(object);
	ps_decompressing_put(decompressing);
	stage_stop(&s);
	ps_strbuf_fini(&shard.unit);
}

/* Takes all memory of the stage once the frame is being decoded. */
static void take_all_memory(struct shard_origin *o, const struct ps_origin_get *get)
{
	uint64_t *taken = o->arg;

	if (*taken || get->offset < PS_PIECE_NBYTES)
		return;
	while (atomic_load(&o->stage->counters.plain_bytes) < 4 * PS_MIB)
		sched_yield();
	PS_LOCK_SCOPE(&o->stage->lock);
	*taken = o->stage->limit - o->stage->used;
	o->stage->used += *taken;
}

static void the_end_of_the_only_frame_needs_no_more_memory(void **state)
{
	const size_t nbytes = 64 * PS_MIB;
	ps_autofree uint8_t *plain = calloc(1, nbytes);
	struct shard shard = {.url = "one"};
	struct answer answer = ANSWER;
	uint64_t x = 1, taken = 0;
	struct one_get one;
	struct stage s;

	for (size_t i = 0; i < nbytes; i++) {
		x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		plain[i] = i % 4096 < 128 ? (uint8_t)(x >> 56) : 0;
	}
	add_frame(&shard.unit, plain, nbytes, 17, true);
	shard.size = shard.unit.len;
	assert_true(shard.size > 2 * PS_PIECE_NBYTES);
	stage_start(&s, *state, 8 * PS_MIB, 24 * PS_MIB, &shard, 1);
	struct ps_decompressing *decompressing = decompressing_of(&s, &shard);
	ps_decompressing_size(decompressing, sized, &answer);
	assert_int_equal(wait_for(&answer), 0);
	assert_true(decompressing->declared);
	s.origin.arg = &taken;
	s.origin.serves = take_all_memory;
	assert_int_equal(try_chunk(decompressing, &shard, nbytes - PS_CHUNK_SIZE, &one), 0);
	assert_memory_equal(one.data, plain + nbytes - PS_CHUNK_SIZE, PS_CHUNK_SIZE);
	assert_true(taken > 0);
	{
		PS_LOCK_SCOPE(&s.stage->lock);
		s.stage->used -= taken;
	}
	ps_decompressing_put(decompressing);
	stage_stop(&s);
	ps_strbuf_fini(&shard.unit);
}

/* Acts as a disk that refuses writes, and as a reader that opens the object at that moment. */
static void hold_unsized(struct shard_origin *o, const struct ps_origin_get *get)
{
	struct ps_object **object = o->arg;

	PS_LOCK_SCOPE(&o->stage->lock);
	struct ps_decompressing *decompressing =
	        PS_CONTAINER_OF(o->stage->shards.next, struct ps_decompressing, link);

	if (*object || get->offset < PS_PIECE_NBYTES || !decompressing->object)
		return;
	*object = ps_decompressing_hold(decompressing);
	decompressing->caches = false;
}

static void an_object_of_unknown_size_does_not_become_the_file(void **state)
{
	const uint64_t nbytes = 20 * PS_MIB + 17;
	struct shard shard = {.url = "frames"};
	struct answer answer = ANSWER;
	struct ps_object *unsized = NULL, *object;
	struct stage s;

	fill_frames(&shard, nbytes, 700001, true);
	stage_start(&s, *state, 64 * PS_MIB, 192 * PS_MIB, &shard, 1);
	s.origin.arg = &unsized;
	s.origin.asked = hold_unsized;
	struct ps_decompressing *decompressing = decompressing_of(&s, &shard);
	ps_decompressing_size(decompressing, sized, &answer);
	assert_int_equal(wait_for(&answer), 0);
	assert_int_equal(answer.size, nbytes);
	assert_non_null(unsized);
	assert_int_not_equal(ps_object_size(unsized), nbytes);
	assert_int_equal(ps_decompressing_object(decompressing, 0, true, &object), 0);
	assert_int_equal(ps_object_size(object), nbytes);
	ps_object_put(object);
	ps_object_put(unsized);
	ps_decompressing_put(decompressing);
	stage_stop(&s);
	ps_strbuf_fini(&shard.unit);
}

/* The next open need not decode the shard again. */
static void a_size_is_kept_while_the_index_refuses_writes(void **state)
{
	const uint64_t nbytes = 3 * PS_MIB + 17;
	struct shard shard = {.url = "frames"};
	struct answer answer = ANSWER;
	uint64_t nodes_below;
	struct stage s;

	fill_frames(&shard, nbytes, 700001, false);
	stage_start(&s, *state, 64 * PS_MIB, 192 * PS_MIB, &shard, 1);
	atomic_store(&index_disk_is_full, true);
	struct ps_decompressing *decompressing = decompressing_of(&s, &shard);
	const struct ps_remote source = decompressing->source;
	ps_decompressing_size(decompressing, sized, &answer);
	assert_int_equal(wait_for(&answer), 0);
	assert_int_equal(answer.size, nbytes);
	ps_decompressing_put(decompressing);
	assert_int_equal(ps_decompress_known_size(s.store, "", shard.url, &source, &nodes_below), nbytes);
	atomic_store(&index_disk_is_full, false);
	stage_stop(&s);
	ps_strbuf_fini(&shard.unit);
}

/* Another dataset still decodes the shard for its size, into a file of its own. */
static void a_dataset_that_still_decodes_for_the_size_does_not_block_another(void **state)
{
	const uint64_t nbytes = 20 * PS_MIB + 17;
	const struct ps_remote source = {.mtime_s = 1, .etag = "\"v1\""};
	struct shard shard = {.url = "frames"};
	struct answer answer = ANSWER;
	struct ps_object *unsized, *object;
	struct stage s;

	fill_frames(&shard, nbytes, 700001, true);
	stage_start(&s, *state, 64 * PS_MIB, 192 * PS_MIB, &shard, 1);
	s.origin.origin.local = true; /* the headers give the size */
	struct ps_decompressing *decompressing = decompressing_of(&s, &shard);
	assert_int_equal(ps_object_get_unsized(
	                         s.store, decompressing->object_url, &source, &decompressing->id, &unsized),
	        0);
	ps_decompressing_size(decompressing, sized, &answer);
	assert_int_equal(wait_for(&answer), 0);
	assert_int_equal(ps_decompressing_object(decompressing, 0, true, &object), 0);
	assert_int_equal(ps_object_size(object), nbytes);
	ps_object_put(unsized);
	ps_object_put(object);
	ps_decompressing_put(decompressing);
	stage_stop(&s);
	ps_strbuf_fini(&shard.unit);
}

/* A thousand shards may be looked up at once. */
static void headers_of_many_shards_are_walked_over_at_once(void **state)
{
	enum { ALL = 12 };
	static const char *const urls[] = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11"};
	const uint64_t nbytes = 10 * PS_MIB + 17;
	struct shard shards[ALL] = {0};
	struct answer answers[ALL];
	struct ps_decompressing *all_decompressing[ALL];
	struct stage s;

	_Static_assert(PS_ARRAY_LEN(urls) == ALL, "");
	fill_frames(&shards[0], nbytes, 700001, true);
	for (size_t i = 0; i < ALL; i++) {
		shards[i] = shards[0];
		shards[i].url = urls[i];
		answers[i] = (struct answer)ANSWER;
	}
	stage_start(&s, *state, 64 * PS_MIB, 192 * PS_MIB, shards, ALL);
	s.origin.origin.local = true;
	for (size_t i = 0; i < ALL; i++) {
		all_decompressing[i] = decompressing_of(&s, &shards[i]);
		ps_decompressing_size(all_decompressing[i], sized, &answers[i]);
	}
	for (size_t i = 0; i < ALL; i++) {
		assert_int_equal(wait_for(&answers[i]), 0);
		assert_int_equal(answers[i].size, nbytes);
		ps_decompressing_put(all_decompressing[i]);
	}
	assert_int_equal(atomic_load(&s.stage->counters.plain_bytes), 0);
	stage_stop(&s);
	ps_strbuf_fini(&shards[0].unit);
}

/* What is cached ----------------------------------------------------------------------------------------- */

/* Settings and counts of the wrapper of ps_object_write_block(). */
static struct {
	_Atomic bool refuses;     /* all calls */
	_Atomic unsigned ncalls;  /* calls begun */
	_Atomic unsigned ndone;   /* calls that have returned */
	_Atomic unsigned nawaits; /* the first call returns after this many others; 0: at once */
} writes;

int __real_ps_object_write_block(struct ps_object *object, uint64_t block, const uint8_t *data);
int __wrap_ps_object_write_block(struct ps_object *object, uint64_t block, const uint8_t *data);
int __wrap_ps_object_write_block(struct ps_object *object, uint64_t block, const uint8_t *data)
{
	unsigned call = atomic_fetch_add(&writes.ncalls, 1), nawaits = atomic_load(&writes.nawaits);

	if (atomic_load(&writes.refuses))
		return -ENOSPC;
	if (nawaits && call == 0) {
		for (int i = 0; i < 1000 && atomic_load(&writes.ndone) < nawaits; i++)
			usleep(10000);
		usleep(100000); /* by then the decompressor's thread has no more to write and waits */
	}
	int rc = __real_ps_object_write_block(object, block, data);
	atomic_fetch_add(&writes.ndone, 1);
	return rc;
}

static void reset_writes(void)
{
	writes.refuses = false;
	writes.ncalls = writes.ndone = writes.nawaits = 0;
}

/* Looks up the size of a shard of `nbytes`, which is decoded for that: the last frame declares no size. */
static void find_size_by_decoding(const char *dir, uint64_t nbytes,
        void (*check)(struct ps_decompressing *decompressing, uint64_t nbytes))
{
	struct shard shard = {.url = "frames"};
	struct answer answer = ANSWER;
	struct stage s;

	fill_frames(&shard, nbytes, 700001, false);
	stage_start(&s, dir, 128 * PS_MIB, 192 * PS_MIB, &shard, 1);
	struct ps_decompressing *decompressing = decompressing_of(&s, &shard);
	ps_decompressing_size(decompressing, sized, &answer);
	assert_int_equal(wait_for(&answer), 0);
	assert_int_equal(answer.size, nbytes);
	if (check)
		check(decompressing, nbytes);
	ps_decompressing_put(decompressing);
	stage_stop(&s);
	ps_strbuf_fini(&shard.unit);
}

static void all_is_cached(struct ps_decompressing *decompressing, uint64_t nbytes)
{
	struct ps_object *object;

	assert_int_equal(ps_decompressing_object(decompressing, 0, true, &object), 0);
	for (uint64_t block = 0; block * PS_BLOCK_SIZE < nbytes; block++) {
		uint64_t nchunks =
		        (PS_MIN(PS_BLOCK_SIZE, nbytes - block * PS_BLOCK_SIZE) + PS_CHUNK_SIZE - 1) /
		        PS_CHUNK_SIZE;

		assert_int_equal(ps_object_chunks(object, block), (1u << nchunks) - 1);
	}
	ps_object_put(object);
}

/* The last block is cached, too. Its length, a whole block or less, is known only at the end. */
static void bytes_decoded_for_a_size_are_cached_to_the_end(void **state)
{
	char dir[PATH_MAX];

	reset_writes();
	snprintf(dir, sizeof(dir), "%s/whole", (const char *)*state);
	assert_int_equal(mkdir(dir, 0700), 0);
	find_size_by_decoding(dir, 6 * PS_BLOCK_SIZE, all_is_cached);
	snprintf(dir, sizeof(dir), "%s/less", (const char *)*state);
	assert_int_equal(mkdir(dir, 0700), 0);
	find_size_by_decoding(dir, 6 * PS_BLOCK_SIZE + 17, all_is_cached);
}

/* Writing the first block takes longer than decoding the shard. */
static void a_size_waits_for_the_last_write(void **state)
{
	reset_writes();
	writes.nawaits = 19;
	find_size_by_decoding(*state, 20 * PS_BLOCK_SIZE + 17, all_is_cached);
	assert_int_equal(writes.ncalls, 21);
}

/* Writes that are under way are refused, too. */
static void nothing_is_written_after_a_refused_write(void **state)
{
	reset_writes();
	writes.refuses = true;
	find_size_by_decoding(*state, 30 * PS_BLOCK_SIZE + 17, NULL);
	assert_in_range(writes.ncalls, 1, PS_WRITES_MAX + 1);
	reset_writes();
}

/* The fetch engine writes the bytes that a get took; the stage writes all others while decoding goes on. */
static void bytes_that_no_get_took_are_cached(void **state)
{
	enum { TAKEN = 20 }; /* in the upper half of the buffer */
	const size_t nbytes = 24 * PS_MIB;
	ps_autofree uint8_t *plain = malloc(nbytes);
	struct shard shard = {.url = "one"};
	struct answer answer = ANSWER;
	struct ps_object *object;
	struct one_get one;
	uint64_t x = 1;
	struct stage s;

	reset_writes();
	for (size_t i = 0; i < nbytes; i++) {
		x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		plain[i] = (uint8_t)(x >> 56);
	}
	add_frame(&shard.unit, plain, nbytes, 17, true);
	shard.size = shard.unit.len;
	stage_start(&s, *state, 256 * PS_MIB, 192 * PS_MIB, &shard, 1);
	struct ps_decompressing *decompressing = decompressing_of(&s, &shard);
	ps_decompressing_size(decompressing, sized, &answer);
	assert_int_equal(wait_for(&answer), 0);
	assert_int_equal(ps_decompressing_object(decompressing, 0, true, &object), 0);
	assert_int_equal(try_chunk(decompressing, &shard, (uint64_t)TAKEN * PS_CHUNK_SIZE, &one), 0);
	assert_memory_equal(one.data, plain + (size_t)TAKEN * PS_CHUNK_SIZE, PS_CHUNK_SIZE);
	for (bool ended = false; !ended; usleep(1000)) {
		PS_LOCK_SCOPE(&s.stage->lock);
		ended = s.stage->ndecompressors == 0;
	}
	for (uint64_t chunk = 0; chunk < nbytes / PS_CHUNK_SIZE; chunk++)
		assert_int_equal(
		        ps_object_chunks(object, chunk / PS_BLOCK_CHUNKS) >> chunk % PS_BLOCK_CHUNKS & 1,
		        chunk != TAKEN);
	ps_object_put(object);
	ps_decompressing_put(decompressing);
	stage_stop(&s);
	ps_strbuf_fini(&shard.unit);
}

/* What is handed out ------------------------------------------------------------------------------------- */

/* The frame is too large to be held back, and its checksum is cut off: until the checksum is compared, the
 * last bytes may be wrong. */
static void the_last_chunk_of_a_frame_waits_for_its_end(void **state)
{
	const size_t nbytes = 24 * PS_MIB;
	ps_autofree uint8_t *plain = malloc(nbytes);
	struct shard shard = {.url = "cut"};
	struct one_get one;
	struct stage s;

	reset_writes();
	for (size_t i = 0; i < nbytes; i++)
		plain[i] = byte_at(i);
	add_frame_with(&shard.unit, plain, nbytes, 17, true, true);
	shard.size = shard.unit.len - 1;
	stage_start(&s, *state, 256 * PS_MIB, 192 * PS_MIB, &shard, 1);
	struct ps_decompressing *decompressing = decompressing_of(&s, &shard);
	decompressing->size = nbytes; /* as if found before */
	get_chunk(decompressing, &shard, nbytes - 2 * PS_CHUNK_SIZE);
	assert_int_equal(try_chunk(decompressing, &shard, nbytes - PS_CHUNK_SIZE, &one), EIO);
	ps_decompressing_put(decompressing);
	stage_stop(&s);
	ps_strbuf_fini(&shard.unit);
}

/* The index has a size for this version, and the origin now has fewer bytes under the same ETag. */
static void a_shard_shorter_than_its_known_size_is_an_error(void **state)
{
	const uint64_t nbytes = 4 * PS_CHUNK_SIZE;
	struct shard shard = {.url = "less"};
	struct answer answer = ANSWER;
	struct ps_view_row row = {.size = nbytes + PS_CHUNK_SIZE};
	struct one_get one;
	struct stage s;

	reset_writes();
	fill_frames(&shard, nbytes, 2 * PS_CHUNK_SIZE, false);
	stage_start(&s, *state, 64 * PS_MIB, 192 * PS_MIB, &shard, 1);
	struct ps_decompressing *decompressing = decompressing_of(&s, &shard);
	struct ps_index_batch *batch = ps_index_batch_new();
	ps_index_batch_put_view(batch, &decompressing->id, &row);
	assert_int_equal(ps_index_batch_commit(ps_store_index(s.store), batch), 0);
	ps_decompressing_put(decompressing);
	decompressing = decompressing_of(&s, &shard);
	ps_decompressing_size(decompressing, sized, &answer);
	assert_int_equal(wait_for(&answer), 0);
	assert_int_equal(answer.size, nbytes + PS_CHUNK_SIZE);
	assert_int_equal(try_chunk(decompressing, &shard, nbytes, &one), EIO);
	assert_non_null(strstr(one.err.text, "holds less than its headers declare"));
	ps_decompressing_put(decompressing);
	stage_stop(&s);
	ps_strbuf_fini(&shard.unit);
}

/* Waiting gets, without threads -------------------------------------------------------------------------- */

struct alone {
	struct ps_decompress stage;
	struct ps_decompressing decompressing;
	struct ps_waiting_get *waiting;
	struct ps_origin_get get;
	struct iovec iov;
	uint8_t data[2 * PS_CHUNK_SIZE];
	unsigned nprogress, ndone;
	int errnum;
};

static void alone_progress(struct ps_origin_get *get, size_t nbytes_so_far)
{
	struct alone *a = PS_CONTAINER_OF(get, struct alone, get);
	static const uint8_t zeros[PS_CHUNK_SIZE];

	assert_int_equal(nbytes_so_far, PS_CHUNK_SIZE);
	a->nprogress++;
	/* The rest comes meanwhile, from another decompressor. */
	PS_LOCK_SCOPE(&a->stage.lock);
	assert_true(ps_waiting_get_copy(a->waiting, PS_CHUNK_SIZE, 2 * PS_CHUNK_SIZE, zeros));
	ps_waiting_gets_answer(&a->decompressing);
	assert_int_equal(a->ndone, 0);
}

static void alone_done(struct ps_origin_get *get, const struct ps_error *err)
{
	struct alone *a = PS_CONTAINER_OF(get, struct alone, get);

	a->ndone++;
	a->errnum = err->err;
	assert_int_equal(get->nbytes_done, sizeof(a->data));
}

static void alone_init(struct alone *a)
{
	*a = (struct alone){.iov = {.iov_base = a->data, .iov_len = sizeof(a->data)}};
	a->get = (struct ps_origin_get){.nbytes = sizeof(a->data),
	        .iov = &a->iov,
	        .niov = 1,
	        .progress = alone_progress,
	        .done = alone_done};
	pthread_mutex_init(&a->stage.lock, NULL);
	a->decompressing = (struct ps_decompressing){.stage = &a->stage, .refs = 2};
	ps_list_init(&a->decompressing.gets);
	a->waiting = calloc(1, sizeof(*a->waiting));
	assert_non_null(a->waiting);
	a->waiting->get = &a->get;
	ps_list_append(&a->decompressing.gets, &a->waiting->link);
}

static void one_thread_at_a_time_answers_a_get(void **state)
{
	static const uint8_t zeros[PS_CHUNK_SIZE];
	static struct alone a;

	(void)state;
	alone_init(&a);
	PS_LOCK_SCOPE(&a.stage.lock);
	assert_true(ps_waiting_get_copy(a.waiting, 0, PS_CHUNK_SIZE, zeros));
	ps_waiting_gets_answer(&a.decompressing);
	assert_int_equal(a.nprogress, 1);
	assert_int_equal(a.ndone, 1);
	assert_int_equal(a.errnum, 0);
	assert_int_equal(a.decompressing.refs, 1);
}

/* The get is cancelled, or its decompressor fails further on, after the get's last byte has come. */
static void a_get_that_has_all_its_bytes_succeeds(void **state)
{
	static const uint8_t zeros[2 * PS_CHUNK_SIZE];
	static struct alone a;

	(void)state;
	alone_init(&a);
	PS_LOCK_SCOPE(&a.stage.lock);
	assert_true(ps_waiting_get_copy(a.waiting, 0, sizeof(zeros), zeros));
	ps_error_set(&a.waiting->err, ECANCELED, "cancelled");
	ps_waiting_gets_answer(&a.decompressing);
	assert_int_equal(a.ndone, 1);
	assert_int_equal(a.errnum, 0);
}

/* Of the stage's 8 MiB, 2 MiB are used, and spare pieces have the others. */
static void spare_buffers_do_not_exceed_the_memory(void **state)
{
	static struct ps_decompress stage = {.limit = 8 * PS_MIB, .used = 2 * PS_MIB};

	(void)state;
	for (int i = 0; i < 12; i++)
		ps_spare_put(&stage, malloc(PS_PIECE_NBYTES), PS_PIECE_NBYTES);
	ps_spare_put(&stage, malloc(PS_OUT_NBYTES), PS_OUT_NBYTES);
	assert_int_equal(stage.spare_nbytes, 6 * PS_MIB);
	ps_spares_drop(&stage, 4 * PS_MIB);
	ps_spare_put(&stage, malloc(PS_OUT_NBYTES), PS_OUT_NBYTES);
	assert_int_equal(stage.spare_nbytes, 4 * PS_MIB + PS_OUT_NBYTES);
	free(ps_spare_take(&stage, PS_PIECE_NBYTES));
	assert_int_equal(stage.spare_nbytes, 4 * PS_MIB + PS_OUT_NBYTES - PS_PIECE_NBYTES);
	ps_spares_drop(&stage, 0);
	assert_int_equal(stage.spare_nbytes, 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, test_dir_setup, test_dir_teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
	        TEST(a_new_shard_gets_a_turn_soon_while_all_threads_decode),
	        TEST(idle_decompressors_are_replaced_at_once),
	        TEST(idle_decompressors_are_replaced_for_a_lookup),
	        TEST(an_idle_decompressor_gives_up_its_window_for_another),
	        TEST(the_only_decompressor_never_waits_for_memory),
	        TEST(decompressors_wait_for_each_other_s_windows),
	        TEST(frame_headers_of_a_local_shard_give_its_size),
	        TEST(a_remote_shard_is_decoded_for_its_size),
	        TEST(a_local_shard_whose_frame_declares_no_size_is_decoded),
	        TEST(a_frame_without_its_magic_number_is_an_error),
	        TEST(a_seek_table_beyond_the_largest_file_size_is_not_used),
	        TEST(failed_requests_for_headers_are_retried),
	        TEST(refused_requests_for_headers_are_an_error),
	        TEST(a_cancelled_get_ends_before_the_origin_answers),
	        TEST(pieces_that_fail_are_requested_again),
	        TEST(pieces_that_end_early_are_requested_again),
	        TEST(an_answer_before_the_request_returns_is_seen),
	        TEST(an_abort_between_attempts_waits_for_requested_pieces),
	        TEST(requests_for_headers_that_no_reader_waits_for_are_not_retried),
	        TEST(bytes_of_another_version_are_not_decoded),
	        TEST(the_version_of_a_shard_without_an_etag_is_learned_once),
	        TEST(a_window_larger_than_the_memory_is_an_error),
	        TEST(bytes_handed_out_of_a_damaged_frame_are_not_cached),
	        TEST(the_end_of_the_only_frame_needs_no_more_memory),
	        TEST(an_object_of_unknown_size_does_not_become_the_file),
	        TEST(a_size_is_kept_while_the_index_refuses_writes),
	        TEST(a_dataset_that_still_decodes_for_the_size_does_not_block_another),
	        TEST(headers_of_many_shards_are_walked_over_at_once),
	        TEST(bytes_decoded_for_a_size_are_cached_to_the_end),
	        TEST(a_size_waits_for_the_last_write),
	        TEST(nothing_is_written_after_a_refused_write),
	        TEST(bytes_that_no_get_took_are_cached),
	        TEST(the_last_chunk_of_a_frame_waits_for_its_end),
	        TEST(a_shard_shorter_than_its_known_size_is_an_error),
	        cmocka_unit_test(one_thread_at_a_time_answers_a_get),
	        cmocka_unit_test(a_get_that_has_all_its_bytes_succeeds),
	        cmocka_unit_test(spare_buffers_do_not_exceed_the_memory),
	};

	return cmocka_run_group_tests_name("decompress", tests, NULL, NULL);
}
