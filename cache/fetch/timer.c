/* The timer: deadlines of readers, retries, pacing, and what is given back when idle. */
#include "base/thread.h"
#include "fetch/fill_private.h"

#define TIMER_BUSY_NS (50 * PS_NS_PER_MS) /* how late a deadline may be noticed */
#define TIMER_IDLE_NS PS_NS_PER_S
#define TRIM_AFTER_NS (30 * PS_NS_PER_S)

static void *timer_main(void *arg)
{
	struct ps_fill *fill = arg;
	uint64_t busy_ns = ps_clock_mono_ns();

	for (;;) {
		uint64_t now = ps_clock_mono_ns();
		unsigned nwaiting;

		ps_waits_ns(&fill->reads.waits, &nwaiting);
		bool busy = nwaiting > 0;

		if (busy)
			ps_fill_expire(fill, now);
		ps_run_adapt(fill, now);
		ps_run_make_room(fill, now);
		if (busy)
			ps_hedge_look(fill, now);
		ps_keep_drop_stale(fill, now);
		/* Nothing that anybody asked for: idle is idle. */
		bool retried = ps_keep_retry_held(fill, now);
		if (retried)
			ps_want_drop_vain(fill);
		uint64_t due = ps_run_retry_due(fill, now);
		{
			PS_LOCK_SCOPE(&fill->lock);
			if (fill->stopping)
				return NULL;
			busy = busy || fill->active ||
			       (!retried && (fill->ndisk_busy || !ps_list_empty(&fill->disk_queue)));
			uint64_t wake = now + (busy ? TIMER_BUSY_NS : TIMER_IDLE_NS);

			wake = PS_MIN(wake, due);
			if (fill->paced)
				wake = PS_MIN(wake, fill->next_start_ns);
			fill->paced = false;
			if (wake > now)
				ps_cond_wait_until(&fill->timer_cond, &fill->lock, wake);
		}
		ps_fill_pump(fill); /* max_bytes_per_s opens with time */
		if (busy) {
			busy_ns = now;
		} else if (now - busy_ns > TRIM_AFTER_NS) {
			/* Also what the disk did not take: whoever comes back after so long asks anew. */
			ps_keep_drop_held(fill, NULL);
			{
				PS_LOCK_SCOPE(&fill->lock);
				ps_keep_drop(fill, NULL);
			}
			ps_budget_trim(fill->budget);
			busy_ns = now;
		}
	}
}

int ps_timer_start(struct ps_fill *fill)
{
	int rc = ps_thread_start(&fill->timer_thread, "fill-timer", timer_main, fill);

	fill->timer_started = rc == 0;
	return rc;
}

void ps_timer_stop(struct ps_fill *fill)
{
	{
		PS_LOCK_SCOPE(&fill->lock);
		fill->stopping = true;
		pthread_cond_broadcast(&fill->timer_cond);
	}
	if (fill->timer_started)
		pthread_join(fill->timer_thread, NULL);
	fill->timer_started = false;
}
