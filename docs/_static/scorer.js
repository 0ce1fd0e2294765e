/* Search: pages to read come before measurements, proofs and the history of changes. */
var Scorer = {
  score: (result) => {
    const [docname, , , , score] = result;
    const far = /^generated\/(benchmarks|changelog|proofs|ledger_proofs|unproved_claims|contributing)/;
    const near = /^(guide|questions|from|glossary|generated\/vignettes)/;
    if (far.test(docname)) return score - 30;
    return near.test(docname) ? score + 10 : score;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
