#include "http/http_private.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>

#include "base/url.h"

struct running {
	const struct ps_http_call *call;
	struct ps_answer *answer;
	bool too_long;
};

void ps_answer_fini(struct ps_answer *answer)
{
	if (answer->body)
		OPENSSL_cleanse(answer->body, answer->nbytes);
	free(answer->body);
	*answer = (struct ps_answer){0};
}

/* The buffer has its full size from the start: growing it would leave copies of secrets in memory. */
static size_t on_body(char *bytes, size_t size, size_t n, void *arg)
{
	struct running *r = arg;

	n *= size;
	if (n > PS_HTTP_CALL_MAX_NBYTES - r->answer->nbytes) {
		r->too_long = true;
		return 0;
	}
	memcpy(r->answer->body + r->answer->nbytes, bytes, n);
	r->answer->nbytes += n;
	return n;
}

static int on_progress(void *arg, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
	const struct running *r = arg;

	(void)a, (void)b, (void)c, (void)d;
	return r->call->stop && atomic_load(r->call->stop);
}

static int set_up(CURL *curl, struct running *r, struct curl_slist **headers, char *text)
{
	const struct ps_http_call *call = r->call;
	int rc = ps_slist_add(headers, "Expect:");

	if (!rc && strcmp(call->method, "PUT") == 0)
		rc = ps_slist_add(headers, "Content-Type:");
	for (size_t i = 0; !rc && call->headers[i]; i++)
		rc = ps_slist_add(headers, call->headers[i]);
	if (rc || curl_easy_setopt(curl, CURLOPT_URL, call->url) != CURLE_OK)
		return -ENOMEM;
	curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(curl, CURLOPT_HTTP09_ALLOWED, 0L);
	curl_easy_setopt(curl, CURLOPT_HTTPHEADER, *headers);
	if (call->body || strcmp(call->method, "GET") != 0) {
		curl_easy_setopt(curl, CURLOPT_POSTFIELDS, call->body ? call->body : "");
		curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, call->method);
	}
	curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)call->timeout_ms);
	curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, (long)call->timeout_ms);
	rc = ps_http_access_set(call->access, curl, call->url, false);
	if (rc)
		return rc;
	if (call->ca_file)
		curl_easy_setopt(curl, CURLOPT_CAINFO, call->ca_file);
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(curl, CURLOPT_WRITEDATA, r);
	curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
	curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
	curl_easy_setopt(curl, CURLOPT_XFERINFODATA, r);
	curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, text);
	return 0;
}

int ps_http_call_run(const struct ps_http_call *call, struct ps_answer *ret, struct ps_error *err)
{
	ps_autoanswer struct ps_answer answer = {.body = malloc(PS_HTTP_CALL_MAX_NBYTES + 1)};
	struct running r = {.call = call, .answer = &answer};
	char text[CURL_ERROR_SIZE] = "", safe[PS_URL_TEXT_LEN];
	struct curl_slist *headers = NULL;
	CURLcode code = CURLE_OUT_OF_MEMORY;
	CURL *curl = curl_easy_init();
	long status = 0;

	if (!answer.body || !curl) {
		curl_easy_cleanup(curl);
		return ps_no_memory(err);
	}
	if (set_up(curl, &r, &headers, text) == 0)
		code = curl_easy_perform(curl);
	curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
	curl_easy_cleanup(curl);
	for (struct curl_slist *h = headers; h; h = h->next)
		OPENSSL_cleanse(h->data, strlen(h->data));
	curl_slist_free_all(headers);
	ps_url_redact(call->url, safe);
	if (r.too_long)
		return ps_error_set(err, EFBIG, "%s %s: the answer has more than %u bytes", call->method,
		        safe, PS_HTTP_CALL_MAX_NBYTES);
	if (code != CURLE_OK)
		return ps_error_set(err,
		        code == CURLE_ABORTED_BY_CALLBACK ? ECANCELED
		        : code == CURLE_OUT_OF_MEMORY     ? ENOMEM
		                                          : ps_http_curl_errnum((int)code),
		        "%s %s: %s", call->method, safe, text[0] ? text : curl_easy_strerror(code));
	answer.status = (int)status;
	answer.body[answer.nbytes] = '\0';
	*ret = answer;
	answer = (struct ps_answer){0};
	return 0;
}
