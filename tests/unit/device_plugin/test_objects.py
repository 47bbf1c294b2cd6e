"""Which state of an object counts."""

from kompakt_device_plugin.objects import Objects


def obj(name, version):
    return {"metadata": {"name": name, "resourceVersion": str(version)}}


def test_the_newest_state_counts_and_a_deleted_object_may_come_again():
    objects = Objects()
    objects.put(obj("a", 10))
    for seen, counts in ((9, 10), (100, 100)):  # a late echo of an older write, and news: 9 < 10 < 100 as numbers
        objects.event("MODIFIED", obj("a", seen))
        assert objects.get("a") == obj("a", counts)
    assert objects.event("DELETED", obj("a", 101)) == "a"
    assert objects.get("a") is None
    objects.event("ADDED", obj("a", 102))
    assert objects.names() == ("a",)


def test_a_list_is_all_there_is():
    objects = Objects()
    objects.put(obj("a", 10))
    objects.replace([obj("c", 3), obj("b", 2)])
    assert objects.names() == ("b", "c")
    assert objects.all() == (obj("b", 2), obj("c", 3))
