// Runs before the page is drawn, so that a chosen theme does not flash. The choice is kept where the
// browser allows it; without a choice the system's theme holds.
try {
  const chosen = localStorage.getItem('stripewise-theme');
  if (chosen === 'dark' || chosen === 'light') document.documentElement.dataset.theme = chosen;
} catch { /* A file opened without storage keeps the system's theme. */ }
