"""Which state of an object counts."""

from kompakt_device_plugin.objects import Objects


def obj(name, version, **more):
    return {"metadata": {"name": name, "resourceVersion": str(version)}, **more}


def test_a_late_echo_of_an_older_write_changes_nothing():
    objects = Objects()
    objects.put(obj("a", 10, says="new"))
    objects.event("MODIFIED", obj("a", 9, says="old"))
    assert objects.get("a")["says"] == "new"
    objects.event("MODIFIED", obj("a", 100, says="newer"))
    assert objects.get("a")["says"] == "newer"


def test_a_deleted_object_is_gone_and_may_come_again():
    objects = Objects()
    objects.put(obj("a", 10))
    assert objects.event("DELETED", obj("a", 11)) == "a"
    assert objects.get("a") is None
    objects.event("ADDED", obj("a", 12))
    assert objects.names() == ("a",)


def test_a_list_is_all_there_is():
    objects = Objects()
    objects.put(obj("a", 10))
    objects.replace([obj("c", 3), obj("b", 2)])
    assert objects.names() == ("b", "c")
