from tools.site.sketch import Sketch

LOW, HIGH, ABOVE = -4, 17, 8  # log2 units above row_max; ABOVE is RESCALE_ABOVE of the kernel
DRAWING = Sketch("The four lanes of a row, each with its own largest score of a tile, on the scale of the row's maximum",
                 f"Above: all four stand less than {ABOVE} above row_max, where every weight is below 2^{ABOVE}: each lane votes no, nothing is exchanged, row_max stays. Below: one of them is 11 above. It votes "
                 "yes, so all lanes of the warp exchange their maxima, and row_max moves to the largest. 23 exchanges in both cases. The scores are invented.")


def case(top: float, name: str, lanes: tuple[int, ...], said: tuple[str, ...]) -> float:
    DRAWING.text(2, top + 12, name, "name")
    y = top + 62
    at = DRAWING.number_line(y + 4, LOW, HIGH, ((0, "row_max"), (ABOVE, "+8"), (16, "f16 ends")))
    DRAWING.box(at(LOW), y - 14, at(ABOVE) - at(LOW), 12, "data", "weights to 2^8")
    DRAWING.box(at(ABOVE), y - 14, at(HIGH) - at(ABOVE), 12, "empty", "vote yes")
    for lane, value in enumerate(lanes):
        DRAWING.box(at(value) - 11, y - 36, 22, 16, "work", f"l{lane}", value > ABOVE)
        DRAWING.line(at(value), y - 20, at(value), y - 14)
    for i, line in enumerate(said):
        DRAWING.text(2, y + 40 + 14 * i, line, "label")
    return y + 40 + 14 * len(said)


y = case(0, "Nearly every tile", (-3, 3, -1, 1), ("23: four exchanges for a lane's two rows", "24: none. Compare, and vote"))
case(y + 8, "One lane has outgrown it", (-3, 3, 11, 1), ("23 and 24: four exchanges, row_max += 11,", "sums and O are corrected by 2^-11"))
