"""A buffer is given out again only once nobody holds a slice of it."""

from twinlog.cluster.frame_pool import (
    MOST_BYTES,
    MOST_FREE,
    MOST_KEPT,
    POOLED_FROM_BYTES,
    FramePool,
)

SIZE = POOLED_FROM_BYTES + 1


def test_buffer_of_which_a_slice_lives_is_not_given_out_again() -> None:
    pool = FramePool()
    first = pool.take(SIZE)
    first[:5] = b"order"
    batch = first[:5]
    del first
    others = [pool.take(SIZE) for _ in range(2 * MOST_KEPT)]
    for other in others:
        other[:5] = b"xxxxx"
    assert bytes(batch) == b"order"
    batches = [other[:5] for other in others]
    for at, other in enumerate(others):
        other[:5] = b"%05d" % at
    assert [bytes(each) for each in batches] == [b"%05d" % at for at in range(len(others))]


def test_buffer_that_nobody_holds_is_used_again() -> None:
    pool = FramePool()
    frame = pool.take(SIZE)
    home = id(frame.obj)
    del frame
    again = pool.take(SIZE // 2 + POOLED_FROM_BYTES // 2)
    assert id(again.obj) == home
    assert len(again) == SIZE // 2 + POOLED_FROM_BYTES // 2


def test_small_and_huge_answers_have_buffers_of_their_own() -> None:
    pool = FramePool()
    for size in (4, POOLED_FROM_BYTES - 1, MOST_BYTES + 1):
        frame = pool.take(size)
        assert isinstance(frame.obj, bytearray)
        assert len(frame) == len(frame.obj) == size


def test_of_buffers_that_nobody_holds_few_are_kept() -> None:
    pool = FramePool()
    frames = [pool.take(SIZE) for _ in range(MOST_KEPT)]
    homes = {id(frame.obj) for frame in frames}
    del frames[: MOST_FREE - 1]
    frames += [pool.take(SIZE) for _ in range(MOST_FREE - 1)]
    assert {id(frame.obj) for frame in frames} == homes
    del frames
    pool.take(4)
    assert len(pool._kept) == MOST_FREE
