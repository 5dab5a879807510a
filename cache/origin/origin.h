/* Origins: where the bytes of a dataset live. One table of functions a kind (http, file, hf).
 *
 * An origin lists the objects of a source, finds size and version of one, and reads ranges of one. It makes
 * single attempts: retries, single flight and deadlines belong to fetch/. It alone decides what is retryable.
 * A fault, a delay or a trace for a test is an origin that wraps an origin.
 *
 * Files, from the top: origin.c (opening; which access and route an origin has), one or more a kind (file.c;
 * http.c; s3.c, s3_request.c, s3_endpoint.c, also for gs; az.c; hub.c, hub_get.c, hub_source.c), http_get.c
 * (ranges and HEADs by HTTP), source.c. origin_private.h, bucket_private.h and hub_private.h are the folder's
 * own.
 *
 * Ownership: an origin belongs to its opener. close ends what is still in flight (ECANCELED) and
 * returns when every done has; not to be called from inside done or progress. Threads: head, get and cancel
 * from any thread, never block on network or disk; progress and done are called from the origin's own
 * threads, never from inside head, get or cancel, with none of its locks held, and must not block for long.
 * Open starts a thread: fork before, not after. Errors: -errno and a struct ps_error. The errnos have one
 * meaning each:
 *
 *   ENOENT         not there (404, 410)
 *   EACCES         refused (401, 403)
 *   ESTALE         another version than expected
 *   ETIMEDOUT      no answer, or a stall
 *   EPROTO         a lie: wrong range, wrong length, 200 for 206, a body past its length
 *   EHOSTUNREACH   the name is not found, or there is no connection
 *   EAGAIN         the server asks to wait (429, 503)
 *   ECANCELED      by cancel
 *   EIO            anything else that the server or the disk said */
#ifndef PS_ORIGIN_ORIGIN_H
#define PS_ORIGIN_ORIGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/remote.h"
#include "http/http.h"
#include "listing/listing.h"

struct ps_origin;

/* One ranged read. The caller fills the first part and keeps it all alive until done. */
struct ps_origin_get {
	const char *url;
	struct ps_remote expect; /* the version that the bytes must belong to; its size is known */
	uint64_t offset;
	size_t nbytes;     /* > 0, offset + nbytes <= expect.size */
	struct iovec *iov; /* where the bytes go; lengths sum up to nbytes; the origin does not change it */
	int niov;
	/* over a new connection: the last attempt got no answer, and other open ones may be as dead */
	bool fresh;
	/* Bytes [0, nbytes_so_far) of the range are in place; called as they arrive, in order, from one
	 * thread, only after status, Content-Range and version of the response were found right. */
	void (*progress)(struct ps_origin_get *get, size_t nbytes_so_far);
	/* Exactly once, last. err->err == 0: the whole range is in place. Otherwise the first nbytes_done
	 * are, and are right. The get may be freed or submitted again inside. */
	void (*done)(struct ps_origin_get *get, const struct ps_error *err);

	/* Filled by the origin before done. */
	size_t nbytes_done;
	struct ps_remote seen;  /* what the response said of the object */
	uint64_t wire_nbytes;   /* body bytes received, also those thrown away */
	uint64_t first_byte_ns; /* from submission; 0 if none came */

	void *priv; /* the origin's, and so is: */
	struct ps_transfer_work work;
};

/* Size and version of one object; same rules. */
struct ps_origin_head {
	const char *url;
	bool fresh; /* as in a get */
	void (*done)(struct ps_origin_head *head, const struct ps_error *err);
	struct ps_remote seen; /* size is known after success */
	void *priv;            /* the origin's, and so is: */
	struct ps_transfer_work work;
};

struct ps_origin_ops {
	const char *name; /* "http", "file" */

	/* Calls fn for every object of the source, in no order, from the calling thread. Blocks on network
	 * and disk; retries what is retryable; bounded (PS_LIST_MAX_ENTRIES, page sizes, depth). An empty
	 * listing is 0 with no calls: the caller decides. `stop` (may be NULL) set to true ends it with
	 * -ECANCELED soon. */
	int (*list)(struct ps_origin *o, ps_list_fn fn, void *arg, const _Atomic bool *stop,
	        struct ps_error *err);
	void (*head)(struct ps_origin *o, struct ps_origin_head *head);
	void (*get)(struct ps_origin *o, struct ps_origin_get *get);
	/* Ends a get early; done comes soon, with ECANCELED unless it was already on its way. No effect on
	 * one that is not submitted (zeroed, or done). The get must be
	 * alive until cancel returns: the caller's own lock keeps done's last part out. */
	void (*cancel)(struct ps_origin *o, struct ps_origin_get *get);
	/* Ends every get and head early, as cancel does, and those yet to come at once: the way out when an
	 * origin does not answer. Lists are ended by their stop flag. */
	void (*abort)(struct ps_origin *o);
	void (*close)(struct ps_origin *o);
	/* Of an origin that stands on another one and is counted: one reference for each pointer kept between
	 * calls. NULL: it lives until it is closed. */
	void (*ref)(struct ps_origin *o);
	void (*unref)(struct ps_origin *o);
};

/* The head of every origin's private struct. */
struct ps_origin {
	const struct ps_origin_ops *ops;
	/* that it stands on: what ends all work of the base ends its work, too. NULL: none */
	struct ps_origin *base;
	/* its bytes are on this machine, or as near: reading them twice costs little */
	bool local;
	bool heads_tell_sums; /* of objects, and gets do not */
	/* May this origin's requests read what it answers 2xx about? So cached bytes are handed out to who
	 * asks by it: a get proves it in any case, a HEAD where it needs the same right. proved NULL: anyone
	 * may read all of it. Called by the one that gets the answer, with no lock held, before its bytes are
	 * used. */
	void (*proved)(void *arg, const char *url, const struct ps_remote *version, int64_t key_expires_s);
	void *proved_arg;
	/* How it is reached, where that is not the usual way: through a proxy, or with other trusted CAs,
	 * another server may answer for a URL. So such objects are others in the cache. NULL: the usual way.
	 * Borrowed. */
	const char *route;
	struct ps_lister lister; /* of its listings */
	bool heads_prove;
	bool proves_all; /* what may be read of one object may be read of all */
	/* one after another that gave none; counted by the one that asks for sums */
	_Atomic unsigned sumless_heads;
};

/* How buckets of an S3 store are addressed. */
enum ps_s3_addressing {
	PS_S3_ADDRESSING_AUTO, /* Amazon's by host name, others by path */
	PS_S3_ADDRESSING_PATH,
	PS_S3_ADDRESSING_VIRTUAL,
};

/* How to talk to an origin; all borrowed during ps_origin_open() only. Zero means the default. */
struct ps_origin_options {
	struct ps_http_options http;
	/* the Hugging Face Hub's; NULL: from the environment, see credentials/credentials.h */
	const char *hf_token_file;

	/* Stores with buckets. */
	/* https://HOST[:PORT]; NULL: $AWS_ENDPOINT_URL_S3, $AWS_ENDPOINT_URL, else the scheme's */
	const char *endpoint;
	const char *region;  /* NULL: as the environment and the profile say, else learned from the store */
	const char *profile; /* of the AWS configuration files; NULL: $AWS_PROFILE */
	const char *gs_credentials; /* a JSON file of Google's; NULL: as the environment says */
	const char *az_sas_file;    /* a shared access signature of Azure's; NULL: as the environment says */
	bool no_sign_request;       /* anonymous */
	bool follow_redirects;      /* of an S3 store, to other hosts: without credentials */
	bool request_payer;         /* we pay for what we read, not the bucket's owner */
	bool pin_versions;          /* list the objects' versions, and read each as it was then */
	enum ps_s3_addressing addressing;
};

/* Takes a SOURCE as the user wrote it (see penstock-mount(1)): URL with braces, a URL ending in "/", a
 * manifest (URL ending in .txt, or @file), file:///dir/ or /dir/. Does not touch the network; reads a local
 * @file. -EINVAL with a text for an unknown scheme or a malformed source. */
int ps_origin_open(const char *source, const struct ps_origin_options *options, struct ps_origin **ret,
        struct ps_error *err) PS_MUST_USE;

/* SOURCE in canonical form without credentials, signatures and fragments: the identity of a dataset, fit for
 * logs and the index. The caller frees it. NULL with *err filled for a malformed source. */
char *ps_source_canonical(const char *source, struct ps_error *err);

/* Who asks, and by which way ----------------------------------------------------------------------------- */

/* Who asks an origin, and by which way: what of source, options, environment and files decides that, as
 * digests.
 *
 * Two mounts with the same access send the same requests with the same credentials. More is taken in than may
 * count (the whole of a profile file, say): another digest costs an access of its own, a wrong one would lend
 * out credentials. What a role's or a container's token is at the moment is no part of it, where it is read
 * from is: such credentials renew themselves.
 *
 * Ownership: the caller's. Threads: any. Blocks: on disk, for files of credentials. */

/* Unkeyed digests of secrets: only keyed ones (ps_store_fingerprint()) may be written down. */
struct ps_identity {
	struct ps_id access;
	/* what a listing depends on beside the source: sources with the same may share its names */
	struct ps_id names;
	bool names_for_all; /* these are the same for every access: a bucket's listing */
	bool has_endpoint;  /* of a store that was named: its tenants may have buckets of the same name */
	struct ps_id route; /* proxy and trusted CAs: by another one another server may answer for a host */
	/* no credentials at all, and the usual route: every access gets the same answers */
	bool anonymous;
	bool has_route; /* not the usual one: no proxy, the system's CAs */
};

/* canonical: ps_source_canonical(source). -ENOMEM. */
int ps_identity_of(const char *source, const char *canonical, const struct ps_origin_options *options,
        struct ps_identity *ret) PS_MUST_USE;

#endif
