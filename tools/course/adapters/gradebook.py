"""The marks as a spreadsheet and an LMS read them: CSV, out of what `grade --json` says."""
import csv
import io

from tools.course.handed_in import printable


def gradebook(marks: dict) -> str:
    """A line for each student: the points, and the marks of each exercise. A name that a spreadsheet would take for a formula has a ' before it."""
    exercises = marks.get("exercises", [marks])
    scores = [{each["student"]: each["score"] for each in of["submissions"]} for of in exercises]
    out = io.StringIO()
    lines = csv.writer(out, lineterminator="\n")
    lines.writerow(["student", f"points of {marks['of']:g}", *(f"{of['exercise']} of {of['of']:g}" for of in exercises)])
    for student, points in marks.get("points", scores[0]).items():
        lines.writerow(["'" * student.startswith(("=", "+", "-", "@")) + printable(student), f"{points:g}",
                        *(f"{of[student]:g}" if student in of else "" for of in scores)])
    return out.getvalue()
