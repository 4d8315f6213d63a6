"""Member-years of the Heritage Health Prize, counted row by row."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pandas as pd

from seepage.papers.tableak.health_heritage import OF_CLAIMS


def member_years(
    claims: pd.DataFrame, drugs: pd.DataFrame, labs: pd.DataFrame, members: pd.DataFrame
) -> list[dict[str, object]]:
    def number(text: str) -> int:
        return int(text.replace("+", ""))

    claim_rows, drug_rows, lab_rows, member_rows = map(_rows, (claims, drugs, labs, members))
    keys = {(row["MemberID"], row["Year"]) for row in (*claim_rows, *drug_rows, *lab_rows)}
    people = {row["MemberID"]: row for row in member_rows}
    rows = []
    for member, year in sorted(keys):
        mine, drug, lab = (
            [row for row in rows_of if (row["MemberID"], row["Year"]) == (member, year)]
            for rows_of in (claim_rows, drug_rows, lab_rows)
        )
        delays = [number(row["PayDelay"]) for row in mine]
        row: dict[str, object] = {
            "LabCount_total": sum(number(entry["LabCount"]) for entry in lab),
            "LabCount_months": len(lab),
            "DrugCount_total": sum(number(entry["DrugCount"]) for entry in drug),
            "DrugCount_months": len(drug),
            "no_Claims": sum(entry["ProviderID"] is not None for entry in mine),
            "PayDelay_total": sum(delays),
            "PayDelay_max": max(delays, default=0),
            "PayDelay_min": min(delays, default=0),
            "max_CharlsonIndex": ">0" if any(entry["CharlsonIndex"] != "0" for entry in mine) else "0",
        }
        for name, column in (("no_Providers", "ProviderID"), ("no_Vendors", "Vendor"), ("no_PCPs", "PCP")):
            row[name] = len({entry[column] for entry in mine} - {None})
        for column, categories in OF_CLAIMS.items():
            counts = Counter(entry[column] or "?" for entry in mine)
            row[column] = max(categories, key=lambda category, counts=counts: counts[category])
        for column in ("AgeAtFirstClaim", "Sex"):
            row[column] = people[member][column] or "?"
        rows.append(row)
    return rows


def _rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows with None for a missing cell."""
    records = table.to_dict("records")
    return [{str(name): None if pd.isna(cell) else cell for name, cell in row.items()} for row in records]
