"""Where four bytes of K, and four of V, go in a fragment."""
from tools.site.sketch import Sketch

DRAWING = Sketch("Bytes of K and of V on their way to a product",
                 "Left, four bytes of a key that stand side by side: the first two become one register of two f16, the other two the second one. Right, what ldmatrix gives of V, two columns of one key and two of the next: prmt puts the bytes of a column side by side, and the same conversion makes a register of the even column and one of the odd.")
for column, (name, bytes_, order) in enumerate((("K: a lane's four bytes of a key", "abcd", "abcd"), ("V: two keys, two columns", "aAbB", "abAB"))):
    left = 4 + 196 * column
    DRAWING.text(left, 14, name, "label")
    for i, byte in enumerate(bytes_):
        DRAWING.box(left + 42 * i, 22, 40, 22, "copy", byte)
    if column:
        DRAWING.text(left, 62, "prmt", "label")
        for i, byte in enumerate(order):
            DRAWING.box(left + 42 * i, 68, 40, 22, "data", byte)
    DRAWING.text(left, 110, "cvt.rn.f16x2.e4m3x2, twice", "label")
    for i in range(2):
        DRAWING.box(left + 84 * i, 116, 82, 22, "work", f"{order[2 * i]}, {order[2 * i + 1]} in f16")
