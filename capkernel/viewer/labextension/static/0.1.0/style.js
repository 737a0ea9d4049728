// @ts-check
/** How a card and the badge look: the application's own variables, so that every theme fits. */
export const STYLE = `
.capk-card { box-sizing: border-box; max-width: 60em; min-width: 0; margin: 4px 0; padding: 6px 10px; border: 1px solid var(--jp-border-color2);
  border-radius: 4px; background: var(--jp-layout-color1); color: var(--jp-ui-font-color1); font: 13px/1.4 var(--jp-ui-font-family); }
.capk-card [hidden] { display: none; }
.capk-head { display: flex; flex-wrap: wrap; align-items: center; gap: 4px 10px; }
.capk-lock { flex: none; width: 14px; height: 14px; color: var(--jp-ui-font-color2); }
.capk-mask { min-width: 0; overflow-wrap: anywhere; font: 600 13px/1.4 var(--jp-code-font-family); color: inherit; background: none; padding: 0; }
.capk-meta, .capk-claim, .capk-status { color: var(--jp-ui-font-color2); overflow-wrap: anywhere; }
.capk-claim, .capk-status { margin: 4px 0 0; font-size: 12px; }
.capk-status:empty { display: none; }
.capk-status.capk-bad { color: var(--jp-error-color1); }
.capk-high { padding: 0 6px; border: 1px solid var(--jp-warn-color1); border-radius: 3px; font-size: 11px; }
.capk-button { margin-left: auto; padding: 2px 12px; border: 1px solid var(--jp-border-color1); border-radius: 3px; cursor: pointer;
  background: var(--jp-layout-color2); color: var(--jp-ui-font-color1); font: inherit; }
.capk-button:hover { background: var(--jp-layout-color3); }
.capk-button:disabled { cursor: default; opacity: .6; }
.capk-button:focus-visible, .capk-card a:focus-visible { outline: 2px solid var(--jp-brand-color1); outline-offset: 2px; }
.capk-card a { color: var(--jp-content-link-color); }
.capk-slot iframe { display: block; width: 100%; border: 0; }
.capk-shown .capk-slot { margin-top: 6px; }
.capk-badge { display: flex; align-items: center; padding: 0 8px; color: var(--jp-ui-font-color1); background: var(--jp-warn-color3); font-size: 12px; white-space: nowrap; }
@media print { .capk-slot, .capk-button { display: none; } }
`;

/** Once for a page. */
export function addStyle() {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(STYLE);
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
}
