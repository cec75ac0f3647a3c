"""The metadata of a GGUF file, without the tensors and without a package."""
import struct

SIMPLE = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
STRING, ARRAY = 8, 9


def read(path):
    with open(path, "rb") as file:
        def number(form):
            return struct.unpack(form, file.read(struct.calcsize(form)))[0]

        def string():
            return file.read(number("<Q")).decode("utf-8", "surrogateescape")

        def value(kind):
            if kind == STRING:
                return string()
            if kind == ARRAY:
                inner, count = number("<I"), number("<Q")
                return [value(inner) for _ in range(count)]
            return number(SIMPLE[kind])

        assert file.read(4) == b"GGUF" and number("<I") in (2, 3)
        number("<Q")
        return {string(): value(number("<I")) for _ in range(number("<Q"))}
