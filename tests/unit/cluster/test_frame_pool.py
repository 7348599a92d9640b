"""A buffer is given out again only once nobody holds a slice of it."""

from twinlog.cluster.net.frame_pool import (
    MOST_BYTES,
    MOST_KEPT,
    POOLED_FROM_BYTES,
    SPARE_BYTES,
    STEP_BYTES,
    FramePool,
)

SIZE = POOLED_FROM_BYTES + 1
FREE_BYTES = 4 * STEP_BYTES


def test_buffer_of_which_a_slice_lives_is_not_given_out_again() -> None:
    pool = FramePool(FREE_BYTES)
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
    pool = FramePool(FREE_BYTES)
    frame = pool.take(SIZE)
    home = id(frame.obj)
    del frame
    again = pool.take(SIZE // 2 + POOLED_FROM_BYTES // 2)
    assert id(again.obj) == home
    assert len(again) == SIZE // 2 + POOLED_FROM_BYTES // 2


def test_small_and_huge_answers_have_buffers_of_their_own() -> None:
    pool = FramePool(FREE_BYTES)
    for size in (4, POOLED_FROM_BYTES - 1, MOST_BYTES + 1):
        frame = pool.take(size)
        assert isinstance(frame.obj, bytearray)
        assert len(frame) == len(frame.obj) == size


def test_small_answer_does_not_hold_a_large_buffer() -> None:
    pool = FramePool(FREE_BYTES)
    large = pool.take(SPARE_BYTES + 2 * STEP_BYTES)
    home = id(large.obj)
    del large
    small = pool.take(STEP_BYTES)
    assert id(small.obj) != home
    assert id(pool.take(SPARE_BYTES + STEP_BYTES).obj) == home


def test_of_buffers_that_nobody_holds_few_bytes_are_kept() -> None:
    pool = FramePool(FREE_BYTES)
    size = SPARE_BYTES + STEP_BYTES
    frames = [pool.take(size) for _ in range(MOST_KEPT)]
    home = id(frames[0].obj)
    del frames[0]
    frames.append(pool.take(size))
    assert id(frames[-1].obj) == home
    del frames
    pool.take(4)
    assert 0 < sum(map(len, pool._kept)) <= FREE_BYTES
