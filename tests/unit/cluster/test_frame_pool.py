"""A buffer is reused only if no slice of it is referenced any more."""

from twinlog.cluster.net.framing import (
    MOST_BYTES,
    MOST_KEPT,
    POOLED_FROM_BYTES,
    SPARE_BYTES,
    STEP_BYTES,
    FramePool,
)

SIZE = POOLED_FROM_BYTES + 1
FREE_BYTES = 4 * STEP_BYTES


def test_buffer_with_a_referenced_slice_is_not_reused() -> None:
    pool = FramePool(FREE_BYTES)
    first = pool.buffer(SIZE)
    first[:5] = b"order"
    batch = first[:5]
    del first
    others = [pool.buffer(SIZE) for _ in range(2 * MOST_KEPT)]
    for other in others:
        other[:5] = b"xxxxx"
    assert bytes(batch) == b"order"
    batches = [other[:5] for other in others]
    for at, other in enumerate(others):
        other[:5] = b"%05d" % at
    assert [bytes(each) for each in batches] == [b"%05d" % at for at in range(len(others))]


def test_unreferenced_buffer_is_reused() -> None:
    pool = FramePool(FREE_BYTES)
    frame = pool.buffer(SIZE)
    home = id(frame.obj)
    del frame
    again = pool.buffer(SIZE // 2 + POOLED_FROM_BYTES // 2)
    assert id(again.obj) == home
    assert len(again) == SIZE // 2 + POOLED_FROM_BYTES // 2


def test_buffers_of_small_and_huge_responses_are_not_pooled() -> None:
    pool = FramePool(FREE_BYTES)
    for size in (4, POOLED_FROM_BYTES - 1, MOST_BYTES + 1):
        frame = pool.buffer(size)
        assert isinstance(frame.obj, bytearray)
        assert len(frame) == len(frame.obj) == size


def test_small_response_does_not_use_a_large_buffer() -> None:
    pool = FramePool(FREE_BYTES)
    large = pool.buffer(SPARE_BYTES + 2 * STEP_BYTES)
    home = id(large.obj)
    del large
    small = pool.buffer(STEP_BYTES)
    assert id(small.obj) != home
    assert id(pool.buffer(SPARE_BYTES + STEP_BYTES).obj) == home


def test_unreferenced_buffers_are_limited() -> None:
    pool = FramePool(FREE_BYTES)
    size = SPARE_BYTES + STEP_BYTES
    frames = [pool.buffer(size) for _ in range(MOST_KEPT)]
    home = id(frames[0].obj)
    del frames[0]
    frames.append(pool.buffer(size))
    assert id(frames[-1].obj) == home
    del frames
    pool.buffer(4)
    assert 0 < sum(map(len, pool._kept)) <= FREE_BYTES
